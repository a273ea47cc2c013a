// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	auditpolicy "k8s.io/apiserver/pkg/audit/policy"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// TestAudit holds that the audit log shows an answer as the client got it, at
// the level that logs whole answers, with managed fields taken out or not.
func TestAudit(t *testing.T) {
	for _, omitManagedFields := range []bool{false, true} {
		for _, r := range []struct{ path, accept string }{
			{"namespaces/shop/pods", ""}, {"namespaces/shop/pods", kubectlTable}, {"namespaces/shop/pods/web-0", ""}, {"nodes", ""},
		} {
			t.Run(fmt.Sprintf("%s %s, omitManagedFields=%v", r.path, r.accept, omitManagedFields), func(t *testing.T) {
				log := &auditLog{}
				server := serve(t, listStore(), enableAll, func(c *genericapiserver.Config) {
					c.AuditBackend = log
					c.AuditPolicyRuleEvaluator = auditpolicy.NewPolicyRuleEvaluator(&auditinternal.Policy{
						OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived},
						Rules:      []auditinternal.PolicyRule{{Level: auditinternal.LevelRequestResponse, OmitManagedFields: &omitManagedFields}},
					})
				})
				a := get(t, server, "/apis/metrics.k8s.io/v1/"+r.path, r.accept)
				if diff := cmp.Diff([]string{string(a.body)}, log.answers()); diff != "" {
					t.Errorf("audited answers (-sent +logged):\n%s", diff)
				}
			})
		}
	}
}

// auditLog keeps the answers of audit events.
type auditLog struct {
	mu     sync.Mutex
	bodies []string
}

var _ audit.Backend = &auditLog{}

func (l *auditLog) ProcessEvents(events ...*auditinternal.Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		if e.ResponseObject != nil {
			l.bodies = append(l.bodies, string(e.ResponseObject.Raw))
		}
	}
	return true
}

func (l *auditLog) answers() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bodies
}

func (l *auditLog) Run(<-chan struct{}) error { return nil }
func (l *auditLog) Shutdown()                 {}
func (l *auditLog) String() string            { return "kept in memory" }
