// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package prometheus

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
