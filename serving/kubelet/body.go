// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// windowSize is what is held of a body at a time, and so the longest line. To
// read a body of any length takes no more memory than this; what stays of it is
// bounded by maxContainers and maxLabels.
const windowSize = 64 << 10

// workspace is what a scrape needs besides its node's ledger. It is pooled, so
// that there are as many as scrapes at once, not as many as nodes.
type workspace struct {
	window  [windowSize]byte
	ready   []*pod
	updates []samplestore.Update
	node    [1]samplestore.Update
}

var workspaces = sync.Pool{New: func() any { return new(workspace) }}

// release gives the workspace back without references to a node's state.
func (w *workspace) release() {
	clear(w.ready[:cap(w.ready)])
	clear(w.updates[:cap(w.updates)])
	clear(w.node[:])
	workspaces.Put(w)
}

var errBodyTooLarge = errors.New("body too large")

// readBody hands the lines of a body to the parser. A body longer than limit
// is an error, and so is a body that breaks off. What was parsed before an error
// counts only after the ledger's commit.
func readBody(r io.Reader, limit int64, w *workspace, p *parser) error {
	buf := w.window[:]
	held, total := 0, int64(0)
	skipping := false // the rest of a line longer than the window
	for {
		n, err := r.Read(buf[held:])
		total += int64(n)
		if total > limit {
			return fmt.Errorf("%w: more than %d bytes", errBodyTooLarge, limit)
		}
		held += n
		ended := errors.Is(err, io.EOF)
		if err != nil && !ended {
			return err
		}
		// Whole windows are parsed, so that a body that arrives in small pieces
		// is not searched for its last newline again and again.
		if !ended && held < len(buf) {
			continue
		}
		lines, rest := splitLast(buf[:held])
		if skipping && lines != nil {
			lines = lines[bytes.IndexByte(lines, '\n')+1:]
			skipping = false
		}
		p.lines(lines)
		switch {
		case ended && len(rest) > 0 && !skipping:
			// A line without its newline may have lost digits.
			p.skip(skipTruncated, rest)
		case len(rest) == len(buf):
			if !skipping {
				p.skip(skipMalformed, rest)
			}
			skipping = true
			rest = nil
		case skipping && lines == nil:
			rest = nil
		}
		if ended {
			return nil
		}
		held = copy(buf, rest)
	}
}

// splitLast splits after the last newline.
func splitLast(b []byte) (lines, rest []byte) {
	i := bytes.LastIndexByte(b, '\n')
	if i < 0 {
		return nil, b
	}
	return b[:i+1], b[i+1:]
}
