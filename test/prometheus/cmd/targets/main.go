// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command targets tells a Prometheus beside it which pods to scrape, by HTTP service
// discovery: Debian's is built without discovery of Kubernetes.
//
// Targets are the running pods of a namespace (all without one) with a container port of
// the name metrics. Their series get the labels namespace and pod.
//
// At /pods?namespace=NAMESPACE are all ports of its running pods, with the labels that
// discovery of pods in Kubernetes gives them, for relabel_configs that are written for it.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// group is one target as Prometheus' http_sd_config wants it.
type group struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

func main() {
	listen := flag.String("listen", "127.0.0.1:8081", "address to listen on")
	namespace := flag.String("namespace", "", "namespace of the pods; empty for all")
	flag.Parse()
	if err := run(*listen, *namespace); err != nil {
		fmt.Fprintln(os.Stderr, "targets:", err)
		os.Exit(1)
	}
}

func run(listen, namespace string) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	answer := func(w http.ResponseWriter, r *http.Request, namespace string, groups func([]corev1.Pod) []group) {
		pods, err := client.CoreV1().Pods(namespace).List(r.Context(), metav1.ListOptions{FieldSelector: "status.phase=Running"})
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(groups(pods.Items))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { answer(w, r, namespace, groups) })
	mux.HandleFunc("/pods", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, r.URL.Query().Get("namespace"), discovered)
	})
	server := &http.Server{Addr: listen, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	return server.ListenAndServe()
}

// discovered returns all ports with the labels of Kubernetes' discovery of pods.
func discovered(pods []corev1.Pod) []group {
	all := []group{}
	for i := range pods {
		pod := &pods[i]
		for _, container := range pod.Spec.Containers {
			for _, port := range container.Ports {
				if pod.Status.PodIP == "" {
					continue
				}
				const prefix = "__meta_kubernetes_"
				labels := map[string]string{
					prefix + "namespace": pod.Namespace, prefix + "pod_name": pod.Name, prefix + "pod_phase": string(pod.Status.Phase),
					prefix + "pod_container_port_name": port.Name,
				}
				for key, value := range pod.Labels {
					labels[prefix+"pod_label_"+notInLabels.ReplaceAllString(key, "_")] = value
				}
				all = append(all, group{
					Targets: []string{net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(port.ContainerPort)))}, Labels: labels,
				})
			}
		}
	}
	return all
}

var notInLabels = regexp.MustCompile("[^a-zA-Z0-9_]")

func groups(pods []corev1.Pod) []group {
	all := []group{}
	for i := range pods {
		for _, container := range pods[i].Spec.Containers {
			for _, port := range container.Ports {
				if port.Name != "metrics" || pods[i].Status.PodIP == "" || pods[i].DeletionTimestamp != nil {
					continue
				}
				all = append(all, group{
					Targets: []string{net.JoinHostPort(pods[i].Status.PodIP, strconv.Itoa(int(port.ContainerPort)))},
					Labels:  map[string]string{"namespace": pods[i].Namespace, "pod": pods[i].Name},
				})
			}
		}
	}
	return all
}
