// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"slices"
	"time"
)

// State is the state of a version.
type State string

const (
	// Pending means that there is no APIService, or one of someone else that is not taken over yet.
	Pending State = "Pending"
	// Canary means that it is being checked whether every kube-apiserver reaches our pods.
	Canary State = "Canary"
	// Moving means that the APIService is about to point to another Service, which becomes ours.
	Moving State = "Moving"
	// Trial means that the APIService was taken over, and requests have not yet succeeded for long enough.
	Trial State = "Trial"
	// Registered means that the APIService is ours and points to the target.
	Registered State = "Registered"
	// Contested means that another field manager keeps changing the APIService back.
	Contested State = "Contested"
	// Kept means that the spec does not name the version, and clients use it.
	Kept State = "Kept"
	// Retiring means that the APIService is deleted, and the version leaves discovery.
	Retiring State = "Retiring"
	// Restoring means that the APIService was adopted, and is handed back to its previous owner.
	Restoring State = "Restoring"
	// Gone means that nothing of the version is left.
	Gone State = "Gone"
)

// Action is one write of an APIService.
type Action string

const (
	// Register creates the APIService.
	Register Action = "Register"
	// Move points the APIService to the target, and makes it ours, in one write.
	Move Action = "Move"
	// Apply corrects our APIService, if it differs from what we want.
	Apply Action = "Apply"
	// AddAuthority adds our authority to the caBundle of someone else's APIService, whose Service stays.
	AddAuthority Action = "AddAuthority"
	// EndTrial makes a takeover final.
	EndTrial Action = "EndTrial"
	// Revert restores the recorded state of the previous owner, since a takeover failed.
	Revert Action = "Revert"
	// Retire stores in the status that the version is to be removed.
	Retire Action = "Retire"
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
	// NeedHolder is the MetricsBackend that the APIService's label names.
	NeedHolder Need = "Holder"
	// NeedReach is whether every kube-apiserver reaches our pods, by the canary API.
	NeedReach Need = "Reach"
	// NeedComparison is what our pods do not answer of what the implementation behind someone else's APIService answers.
	NeedComparison Need = "Comparison"
	// NeedConsumers is whether clients keep a version that the spec does not name.
	NeedConsumers Need = "Consumers"
	// NeedPreviousEndpoints is whether the previous owner is ready to get requests again.
	NeedPreviousEndpoints Need = "PreviousEndpoints"
	// NeedSuccessor is another MetricsBackend that is ready to take the version over.
	NeedSuccessor Need = "Successor"
	// NeedDiscovery is the discovery of each kube-apiserver.
	NeedDiscovery Need = "Discovery"
	// NeedRouting is where each kube-apiserver routes requests for the version.
	NeedRouting Need = "Routing"
	// NeedPreviousOwner is the Service of the previous owner, and what its endpoints answer.
	NeedPreviousOwner Need = "PreviousOwner"
)

// Decision is what happens to a version next.
type Decision struct {
	State State
	// On is what was observed, as in the table; empty if no transition applies.
	On string
	// Needs is what has to be observed before anything is decided, or empty.
	Needs Need
	// Action is to be done now, or empty. The version is read again after it.
	Action Action
	// Waits is what the version waits for, or empty. Reason says that it is a conflict with someone
	// else, or empty; Blocks, that nothing else of the MetricsBackend changes meanwhile.
	Waits, Reason string
	Blocks        bool
	// Moves says that the APIService moves, or is about to: no other version is registered meanwhile.
	Moves bool
	// Recheck is when to decide again, if nothing changes before; or 0.
	Recheck time.Duration
	// Event is the reason of a warning that the action deserves, and Note its text; or empty.
	Event, Note string
}

// Transition is a row of the table: what happens to a version in a state.
type Transition struct {
	From []State
	// On is what was observed. The first transition of a state that applies is taken.
	On string
	// Do is the action, or empty if the version waits, or is done.
	Do Action
	// To is the state after it, or empty if that stays.
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
	// paused: the version waits for the end of Version.Paused, which has the text, the reason and the time of the next decision.
	paused bool
	// reason, blocks, moves and recheck are those of the Decision.
	reason        string
	blocks, moves bool
	recheck       func(*Version) time.Duration
}

// Decide returns what happens to the version next, by the first of the transitions that applies.
func Decide(v *Version) Decision {
	state := v.state()
	for _, t := range transitions {
		switch {
		case !slices.Contains(t.From, state) || !t.when(v):
			continue
		case t.needs != "" && !v.Known.Has(t.needs):
			return Decision{State: state, Needs: t.needs}
		case t.holds != nil && !t.holds(v):
			continue
		}
		d := Decision{State: cmp.Or(t.To, state), On: t.On, Action: t.Do, Event: t.Event, Reason: t.reason, Blocks: t.blocks, Moves: t.moves}
		switch {
		case t.paused:
			d.Waits, d.Reason, d.Recheck = v.Paused.Message, v.Paused.Reason, v.Paused.Left
		case t.text == nil:
		case t.Do == "":
			d.Waits = t.text(v)
		default:
			d.Note = t.text(v)
		}
		if t.recheck != nil {
			d.Recheck = t.recheck(v)
		}
		return d
	}
	return Decision{State: state}
}

// transitions is the table, in the order in which it is tried.
var transitions = slices.Concat(leaving, registering, retiring)

// Transitions returns the table.
func Transitions() []Transition { return slices.Clone(transitions) }
