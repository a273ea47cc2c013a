// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command gitserver serves empty Git repositories over HTTP, which anyone may clone and push to. It runs git's own
// http-backend, so that clients get all of the protocol, such as shallow clones.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

func main() {
	listen := flag.String("listen", ":8080", "address to listen on")
	root := flag.String("root", "", "folder of the repositories")
	flag.Parse()
	if err := run(*listen, *root, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "gitserver:", err)
		os.Exit(1)
	}
}

func run(listen, root string, repositories []string) error {
	if root == "" || len(repositories) == 0 {
		return errors.New("give --root=FOLDER and the names of the repositories")
	}
	git, err := exec.LookPath("git")
	if err != nil {
		return err
	}
	for _, name := range repositories {
		folder := filepath.Join(root, name)
		// The image has no templates.
		if out, err := exec.Command(git, "init", "--bare", "--template=", "--initial-branch=main", folder).CombinedOutput(); err != nil {
			return fmt.Errorf("create the repository %s: %w: %s", folder, err, out)
		}
	}
	server := &http.Server{Addr: listen, ReadHeaderTimeout: 10 * time.Second, Handler: &cgi.Handler{
		Path: git, Args: []string{"http-backend"}, Root: "/", Dir: root,
		Env: []string{
			"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1",
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=http.receivepack", "GIT_CONFIG_VALUE_0=true",
		},
	}}
	// A connection that stays open would outlive the Service's endpoint, which tests remove.
	server.SetKeepAlivesEnabled(false)
	return server.ListenAndServe()
}
