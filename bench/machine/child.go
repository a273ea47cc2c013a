// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Child returns the ID of the child process with this name, of at most 15 bytes. It is an
// error if there is none, or more than one.
func Child(name string) (int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	var found []int
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		pid, command, parent, err := parseStat(string(content))
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", file, err)
		}
		if command == name && parent == os.Getpid() {
			found = append(found, pid)
		}
	}
	if len(found) != 1 {
		return 0, fmt.Errorf("%d child processes are named %s, want one", len(found), name)
	}
	return found[0], nil
}

// parseStat returns the first fields of /proc/PID/stat: PID (NAME) STATE PARENT.
func parseStat(content string) (pid int, name string, parent int, err error) {
	// The name can have any characters.
	open, closing := strings.IndexByte(content, '('), strings.LastIndexByte(content, ')')
	if open < 0 || closing < open {
		return 0, "", 0, fmt.Errorf("no name in %.60q", content)
	}
	rest := strings.Fields(content[closing+1:])
	if len(rest) < 2 {
		return 0, "", 0, fmt.Errorf("no parent in %.60q", content)
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(content[:open])); err != nil {
		return 0, "", 0, err
	}
	parent, err = strconv.Atoi(rest[1])
	return pid, content[open+1 : closing], parent, err
}
