// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// FaultRequest is the body of POST /faults: a fault and the nodes it is for, by
// name or as a share of the fleet. Neither means all nodes.
type FaultRequest struct {
	Fault `json:",inline"`
	Nodes []string `json:"nodes,omitempty"`
	Share float64  `json:"share,omitempty"`
}

// FaultList is the answer of /faults: the faulty nodes, in the fleet's order.
type FaultList struct {
	Kinds  []Kind      `json:"kinds"`
	Faults []NodeFault `json:"faults"`
}

// NodeFault is a node and its fault.
type NodeFault struct {
	Node  string `json:"node"`
	Fault Fault  `json:"fault"`
}

// ControlHandler switches faults and churn by HTTP. It has no authentication:
// serve it on loopback only. apply, which may be nil, is told of each churn.
//
//	GET    /faults          the faulty nodes and the known kinds
//	POST   /faults          a FaultRequest
//	DELETE /faults?node=N   heals these nodes, or all
//	POST   /churn           a Churn
//	GET    /stats           Stats
//	GET    /ca              what to trust, PEM
func (f *Fleet) ControlHandler(apply func([]Change)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) { reply(w, f.faultList()) })
	mux.HandleFunc("POST /faults", func(w http.ResponseWriter, r *http.Request) {
		var request FaultRequest
		if !decode(w, r, &request) {
			return
		}
		names, err := f.selected(request)
		if err == nil {
			err = f.SetFault(request.Fault, names...)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reply(w, f.faultList())
	})
	mux.HandleFunc("DELETE /faults", func(w http.ResponseWriter, r *http.Request) {
		if err := f.SetFault(Fault{}, r.URL.Query()["node"]...); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reply(w, f.faultList())
	})
	mux.HandleFunc("POST /churn", func(w http.ResponseWriter, r *http.Request) {
		var round Churn
		if !decode(w, r, &round) {
			return
		}
		changes, err := f.Churn(round)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if apply != nil {
			apply(changes)
		}
		reply(w, changeList(changes))
	})
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) { reply(w, f.Stats()) })
	mux.HandleFunc("GET /ca", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-pem-file")
		_, _ = w.Write(f.authority.PEM)
	})
	return mux
}

func (f *Fleet) selected(request FaultRequest) ([]string, error) {
	switch {
	case request.Kind == "":
		return nil, errors.New("the request names no kind; DELETE /faults heals")
	case request.Share < 0 || request.Share > 1:
		return nil, fmt.Errorf("share %v: must lie in 0..1", request.Share)
	case request.Share > 0 && len(request.Nodes) > 0:
		return nil, errors.New("the request has both nodes and a share: name one of them")
	case request.Share > 0:
		return f.Share(request.Share), nil
	}
	return request.Nodes, nil
}

func (f *Fleet) faultList() FaultList {
	list := FaultList{Kinds: Kinds(), Faults: []NodeFault{}}
	for _, n := range f.nodes {
		if fault := n.Fault(); fault.Kind != "" {
			list.Faults = append(list.Faults, NodeFault{Node: n.Name, Fault: fault})
		}
	}
	return list
}

// changeEntry is a Change as the control endpoint tells it.
type changeEntry struct {
	Change ChangeKind `json:"change"`
	Pod    string     `json:"pod"`
	From   string     `json:"from,omitempty"`
	To     string     `json:"to,omitempty"`
}

func changeList(changes []Change) []changeEntry {
	entries := make([]changeEntry, len(changes))
	for i, c := range changes {
		entries[i] = changeEntry{Change: c.Kind, Pod: c.Pod.Key().String()}
		if c.From != nil {
			entries[i].From = c.From.Name
		}
		if c.To != nil {
			entries[i].To = c.To.Name
		}
	}
	return entries
}

func decode(w http.ResponseWriter, r *http.Request, into any) bool {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		http.Error(w, "reading the request: "+err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

func reply(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(answer) // an error means that the client has left
}
