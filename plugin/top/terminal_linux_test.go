// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// pseudoTerminal is a terminal of that size: what a user has, and what a program has.
func pseudoTerminal(t *testing.T, width, height uint16) (user, program *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = user.Close() })
	fd := int(user.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	resize(t, user, width, height)
	return user, program
}

func resize(t *testing.T, user *os.File, width, height uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(user.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height}); err != nil {
		t.Fatal(err)
	}
}

// What a terminal shows while the table lives, and that it gets everything back.
func TestTerminal(t *testing.T) {
	for name, quit := range map[string]func(user *os.File, cancel func()){
		"q":        func(user *os.File, _ func()) { _, _ = user.WriteString("q") },
		"Ctrl-C":   func(user *os.File, _ func()) { _, _ = user.WriteString("\x03") },
		"a signal": func(_ *os.File, cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			user, program := pseudoTerminal(t, 100, 12)
			before, err := term.GetState(int(program.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			w := newWorld()
			cluster := w.start(t)
			o := &options{namespace: "shop", sortBy: "cpu", watch: true, format: "text", interval: 15 * time.Second, maxAge: time.Minute}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				environment := func(v string) string { return map[string]string{"LANG": "C.UTF-8"}[v] }
				ended <- o.run(ctx, cluster, genericiooptions.IOStreams{In: program, Out: program, ErrOut: program}, environment)
			}()
			shown := make(chan string, 100)
			go func() {
				piece := make([]byte, 4096)
				for {
					n, err := user.Read(piece)
					if err != nil {
						return // closed by the end of the test
					}
					shown <- string(piece[:n])
				}
			}()
			seen := "" // and not looked at: pieces do not end where what is drawn does
			until := func(want string) {
				t.Helper()
				for !strings.Contains(seen, want) {
					select {
					case piece := <-shown:
						seen += piece
					case <-time.After(20 * time.Second):
						t.Fatalf("no %q in %q", want, seen)
					}
				}
				_, seen, _ = strings.Cut(seen, want)
			}
			until("\x1b[?1049h\x1b[?25l")
			until("watching metrics.k8s.io/v1")
			until("251m") // of the list, or the event might take its place before it was drawn
			<-w.opened
			w.events <- `{"type":"ADDED","object":` + podAt("cart-0", "2026-05-04T12:00:15Z", 100, 66) + `}`
			until("▄")
			_, _ = user.WriteString("m")
			until("by memory")
			resize(t, user, 40, 5)
			until("\x1b[H\x1b[Kwatching metrics.k8s.io/v1; newest samp…")

			quit(user, cancel)
			until("\x1b[?7h\x1b[?25h\x1b[?1049l")
			if err := <-ended; err != nil {
				t.Error(err)
			}
			after, err := term.GetState(int(program.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(fmt.Sprint(*before), fmt.Sprint(*after)); diff != "" {
				t.Errorf("the terminal is another: %s", diff)
			}
		})
	}
}
