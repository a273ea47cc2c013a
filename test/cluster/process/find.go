// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/state"
)

// Found is a process that belongs to the cluster, with or without a record.
type Found struct {
	Identity
	// Executable is the path that it runs, empty where the kernel does not tell.
	Executable string
}

// Marked returns every process that carries the state directory's mark in the environment it was started
// with: components, their children and containerd's shims. Containers do not: theirs is of the pod's making.
func Marked(dir state.Dir) ([]Found, error) {
	mark := []byte(markVariable + "=" + string(dir))
	return scan(func(pid int) bool {
		environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		return err == nil && hasEntry(environment, mark)
	})
}

// Shims returns the containerd shims that report to a socket, by their command line.
func Shims(socket string) ([]Found, error) {
	return scan(func(pid int) bool {
		cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return err == nil && isShim(cmdline, socket)
	})
}

func isShim(cmdline []byte, socket string) bool {
	arguments := bytes.Split(bytes.TrimRight(cmdline, "\x00"), []byte{0})
	if !bytes.HasPrefix([]byte(filepath.Base(string(arguments[0]))), []byte("containerd-shim")) {
		return false
	}
	for i, argument := range arguments[1:] {
		if string(argument) == "-address" && i+2 < len(arguments) {
			return string(arguments[i+2]) == socket
		}
	}
	return false
}

func hasEntry(environment, entry []byte) bool {
	for _, e := range bytes.Split(environment, []byte{0}) {
		if bytes.Equal(e, entry) {
			return true
		}
	}
	return false
}

func scan(match func(pid int) bool) ([]Found, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var found []Found
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// Identified first: should the id change hands before the match, the identity is of one that ended.
		id, err := Identify(pid)
		if err != nil || !match(pid) || !id.Alive() {
			continue
		}
		executable, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		found = append(found, Found{Identity: id, Executable: executable})
	}
	return found, nil
}
