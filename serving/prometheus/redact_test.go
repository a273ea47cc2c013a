// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/sourceclient"
)

// Whatever a server echoes, and wherever, no credential reaches a caller.
func TestRedaction(t *testing.T) {
	credentials := map[string]func(*v1alpha1.PrometheusSource){
		"bearer token": func(s *v1alpha1.PrometheusSource) {
			s.Authentication.BearerTokenSecretKeyRef = secretKey("login", "token")
		},
		"basic": func(s *v1alpha1.PrometheusSource) {
			s.Authentication.BasicAuthSecretRef = &v1alpha1.SecretReference{Name: "login"}
		},
		"headers": func(s *v1alpha1.PrometheusSource) {
			s.Headers = []v1alpha1.SourceHeader{
				{Name: "Cookie", ValueSecretKeyRef: secretKey("login", "cookie")}, {Name: "X-Session", Value: "visible-session"},
				{Name: "Authorization", ValueSecretKeyRef: secretKey("login", "header")},
			}
		},
	}
	data := map[string]string{
		"token": "t0p-secret\n", "username": "joe-user", "password": "hunter2\n", "cookie": "session=t0p-secret", "header": "Basic am9lOmh1bnRlcjI=",
	}
	// What the echoes hold of them, and none may.
	hidden := []string{"t0p-secret", "joe-user", "hunter2", "am9l", "session=", "visible-session"}
	echo := func(r *http.Request) string {
		user, password, _ := r.BasicAuth()
		return strings.Join([]string{
			"got", r.Header.Get("Authorization"), r.Header.Get("Cookie"), r.Header.Get("X-Session"), user, strings.TrimSpace(password),
		}, " ")
	}
	wheres := map[string]func(w http.ResponseWriter, text string){
		"a warning": func(w http.ResponseWriter, text string) {
			b, _ := json.Marshal(map[string]any{"status": "success", "warnings": []string{text}, "data": map[string]any{"resultType": "vector", "result": []any{}}})
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(b)
		},
		"an error": func(w http.ResponseWriter, text string) {
			b, _ := json.Marshal(map[string]string{"status": "error", "errorType": "bad_data", "error": text})
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write(b)
		},
		"a text": func(w http.ResponseWriter, text string) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, text)
		},
		"a page": func(w http.ResponseWriter, text string) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html><title>"+text+"</title></html>")
		},
		"a redirect": func(w http.ResponseWriter, text string) {
			w.Header().Set("Location", "https://elsewhere.example/"+strings.ReplaceAll(text, " ", "/"))
			w.WriteHeader(http.StatusFound)
		},
	}
	for of, change := range credentials {
		for where, tell := range wheres {
			t.Run(of+" in "+where, func(t *testing.T) {
				w := newWorld(t, func(w http.ResponseWriter, r *http.Request) { tell(w, echo(r)) }, change)
				w.secrets.set("login", data)
				answer, err := w.source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant)
				var told string
				if err != nil {
					told = err.Error()
				} else {
					told = strings.Join(answer.Warnings, "; ")
				}
				if !strings.Contains(told, sourceclient.Redacted) {
					t.Errorf("told %q, want %s in it", told, sourceclient.Redacted)
				}
				for _, secret := range hidden {
					if strings.Contains(told, secret) {
						t.Errorf("told %q, with %q", told, secret)
					}
				}
			})
		}
	}
}
