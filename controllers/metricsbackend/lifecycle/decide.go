// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

// State is the state of a version.
type State string

const (
	// Retiring: the APIService is deleted, and the version leaves discovery.
	Retiring State = "Retiring"
	// Restoring: the APIService was adopted, and is handed back to its previous owner.
	Restoring State = "Restoring"
	// Gone: nothing of the version is left.
	Gone State = "Gone"
)

// Action is one write of an APIService.
type Action string

const (
	// Delete deletes the APIService.
	Delete Action = "Delete"
	// HandBack restores the recorded state of the previous owner.
	HandBack Action = "HandBack"
	// Disown removes our labels and annotations, and leaves the rest as another manager wrote it.
	Disown Action = "Disown"
)

// Need is an observation that costs requests, and is made only if a decision depends on it.
type Need string

const (
	// NeedSuccessor: another MetricsBackend that is ready to take the version over.
	NeedSuccessor Need = "Successor"
	// NeedDiscovery: the discovery of each kube-apiserver.
	NeedDiscovery Need = "Discovery"
	// NeedRouting: where each kube-apiserver routes requests for the version.
	NeedRouting Need = "Routing"
	// NeedPreviousOwner: the Service of the previous owner, and what its endpoints answer.
	NeedPreviousOwner Need = "PreviousOwner"
)

// Decision is what happens to a version next.
type Decision struct {
	State State
	// Needs is what has to be observed before anything is decided, or empty.
	Needs Need
	// Action is to be done now, or empty. The version is read again after it.
	Action Action
	// Waits is what the version waits for, or empty.
	Waits string
	// Event is the reason of a warning that the action deserves, and Note its text; or empty.
	Event, Note string
}

// Transition is a row of the table: what happens to a version in a state.
type Transition struct {
	From State
	// On is what was observed. The first transition of a state that applies is taken.
	On string
	// Do is the action, or empty if the version waits, or is done.
	Do Action
	To State
	// Event is the reason of a warning, or empty.
	Event string

	// when is what is known without further requests, and holds, if it is set, what an observation
	// of needs says.
	when  func(*Version) bool
	needs Need
	holds func(*Version) bool
	// text is what the version waits for or, with an action, the text of the event; or nil.
	text func(*Version) string
}

// Decide returns what happens to the version next, by the first of the transitions that applies.
func Decide(v *Version) Decision {
	state := v.state()
	for _, t := range Transitions() {
		switch {
		case t.From != state || !t.when(v):
			continue
		case !v.knows(t.needs):
			return Decision{State: state, Needs: t.needs}
		case t.holds != nil && !t.holds(v):
			continue
		}
		d := Decision{State: t.To, Action: t.Do, Event: t.Event}
		switch {
		case t.text == nil:
		case t.Do == "":
			d.Waits = t.text(v)
		default:
			d.Note = t.text(v)
		}
		return d
	}
	return Decision{State: state}
}

// Transitions returns the table, in the order in which it is tried.
func Transitions() []Transition { return retiring }
