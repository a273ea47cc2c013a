// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package argocd runs Argo CD's health checks, which are Lua, in tests.
package argocd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// Statuses are what Argo CD knows; it takes any other for Unknown.
var Statuses = []string{"Healthy", "Progressing", "Degraded", "Suspended", "Missing", "Unknown"}

// Health is what a check says of an object.
type Health struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

// timeout is Argo CD's own for a check.
const timeout = time.Second

// Run runs a health check over an object as Argo CD does (its util/lua): without
// the libraries that reach outside, with the object as the global obj.
func Run(check string, object map[string]any) (Health, error) {
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	for _, library := range []struct {
		name string
		open lua.LGFunction
	}{
		{lua.LoadLibName, lua.OpenPackage}, {lua.BaseLibName, lua.OpenBase}, {lua.TabLibName, lua.OpenTable},
	} {
		l.Push(l.NewFunction(library.open))
		l.Push(lua.LString(library.name))
		l.Call(1, 0)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	l.SetContext(ctx)
	l.SetGlobal("obj", value(l, object))
	if err := l.DoString(check); err != nil {
		return Health{}, fmt.Errorf("run the health check: %w", err)
	}
	table, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		return Health{}, fmt.Errorf("the health check returned %s, not a table", l.Get(-1).Type())
	}
	health := Health{Status: lua.LVAsString(table.RawGetString("status")), Message: lua.LVAsString(table.RawGetString("message"))}
	if !slices.Contains(Statuses, health.Status) {
		return health, fmt.Errorf("the health check returned status %q, want one of %v", health.Status, Statuses)
	}
	if health.Message == "" {
		return health, errors.New("the health check returned no message")
	}
	return health, nil
}

// value is what Argo CD makes of decoded JSON: all numbers are Lua's floats.
func value(l *lua.LState, in any) lua.LValue {
	switch in := in.(type) {
	case bool:
		return lua.LBool(in)
	case float64:
		return lua.LNumber(in)
	case int64:
		return lua.LNumber(in)
	case string:
		return lua.LString(in)
	case []any:
		table := l.CreateTable(len(in), 0)
		for _, item := range in {
			table.Append(value(l, item))
		}
		return table
	case map[string]any:
		table := l.CreateTable(0, len(in))
		for key, item := range in {
			table.RawSetString(key, value(l, item))
		}
		return table
	case nil:
		return lua.LNil
	}
	return lua.LNumber(math.NaN())
}
