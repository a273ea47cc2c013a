// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package textparse parses the Prometheus text exposition format as kubelets write
// it: lines, metric names, the labels of a container, values and timestamps. It
// holds a body only in parts and allocates nothing for a valid line.
//
// TestAgreesWithReference of the package kubelet compares it with Prometheus' own
// parser.
package textparse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// ErrTooLarge is the error of a body that is larger than the limit.
var ErrTooLarge = errors.New("body too large")

// ReadLines reads a body of at most limit bytes through buf, whose length is also
// that of the longest line. It calls lines with any number of whole lines, each with
// its newline, and skip with the beginning of a line that is too long or, if
// truncated, that has no newline at the end of the body. It returns ErrTooLarge or
// the error of r; lines may have been called before.
func ReadLines(r io.Reader, limit int64, buf []byte, lines func(b []byte), skip func(line []byte, truncated bool)) error {
	held, total := 0, int64(0)
	skipping := false // the rest of a line that is too long
	for {
		n, err := r.Read(buf[held:])
		total += int64(n)
		if total > limit {
			return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
		}
		held += n
		ended := errors.Is(err, io.EOF)
		if err != nil && !ended {
			return err
		}
		// Only a full buffer is parsed, so that a body that arrives in small parts
		// is not searched for its last newline again and again.
		if !ended && held < len(buf) {
			continue
		}
		end := bytes.LastIndexByte(buf[:held], '\n') + 1
		whole, rest := buf[:end], buf[end:held]
		if skipping && end > 0 {
			whole = whole[bytes.IndexByte(whole, '\n')+1:]
			skipping = false
		}
		lines(whole)
		switch {
		case skipping:
			rest = nil
		case ended && len(rest) > 0:
			// A number may have lost digits.
			skip(rest, true)
		case len(rest) == len(buf):
			skip(rest, false)
			skipping = true
			rest = nil
		}
		if ended {
			return nil
		}
		held = copy(buf, rest)
	}
}

// MetricName splits a line after its metric name, and trims blanks before and
// after it. name is nil for comments and empty lines.
func MetricName(line []byte) (name, rest []byte) {
	line = TrimBlanks(line)
	n := 0
	for n < len(line) && line[n] != '{' && line[n] != ' ' && line[n] != '\t' {
		n++
	}
	if n == 0 || line[0] == '#' {
		return nil, nil
	}
	return line[:n], TrimBlanks(line[n:])
}

// ParseSample parses what follows the labels: a value and an optional timestamp, in
// Unix milliseconds, which defaults to now.
func ParseSample(b []byte, now int64) (value float64, timestamp int64, ok bool) {
	b = TrimBlanks(b)
	n := tokenEnd(b)
	if value, ok = parseFloat(b[:n]); !ok {
		return 0, 0, false
	}
	if b = TrimBlanks(b[n:]); len(b) == 0 {
		return value, now, true
	}
	n = tokenEnd(b)
	timestamp, ok = parseInt(b[:n])
	return value, timestamp, ok && len(TrimBlanks(b[n:])) == 0
}

// TrimBlanks returns b without leading spaces and tabs.
func TrimBlanks(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	return b
}

func tokenEnd(b []byte) int {
	for i, c := range b {
		if c == ' ' || c == '\t' {
			return i
		}
	}
	return len(b)
}
