// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"testing"
	"time"
)

func TestOwnProcess(t *testing.T) {
	before, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	load, err := ReadLoad()
	if err != nil {
		t.Fatal(err)
	}
	after := before
	for after < before+30*time.Millisecond { // work until the kernel has noticed
		if after, err = CPU(os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
	later, err := ReadLoad()
	if err != nil {
		t.Fatal(err)
	}
	if share := later.Since(load); share <= 0 || share > 1 {
		t.Errorf("%f of the machine was busy", share)
	}

	rss, err := RSS(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if rss < 1<<20 || rss > 1<<30 {
		t.Errorf("%d bytes", rss)
	}
}

func TestNoSuchProcess(t *testing.T) {
	const none = 1 << 22 // more than the kernel has
	if _, err := CPU(none); err == nil {
		t.Error("CPU of a process that is not there")
	}
	if _, err := RSS(none); err == nil {
		t.Error("memory of a process that is not there")
	}
}
