#!/usr/bin/env bash
# The product in one command: a real Kubernetes cluster on this machine, the
# operator in it, a MetricsBackend, and an autoscaler that scales by it.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/steps.sh

if [ "$(id -u)" -ne 0 ] || [ "$(uname -s)" != Linux ]; then
	echo "make demo starts a kubelet and containers, which needs root on Linux." >&2
	echo "With a cluster of your own: make load deploy, then kubectl apply --server-side -k config/samples." >&2
	exit 1
fi

cluster() { go -C test/cluster run . "$@"; }

title "A real Kubernetes cluster"
echo "  The first run builds Kubernetes from its Go modules: about 8 minutes on two cores."
cluster up ${IPV6:+--ip-family=IPv6}
bin=$(cluster binaries kubectl)
export PATH=$bin:$PATH
KUBECONFIG=$(cluster kubeconfig)
export KUBECONFIG

title "The operator and its serving component"
step "build the binaries" make build
step "build the images, without a container engine" make images
step "load the images" make load
step "install CRDs and operator: kubectl apply -k config/default" make deploy

title "A MetricsBackend"
step "kubectl apply -k config/samples" kubectl apply --server-side -k config/samples
step "wait for condition Available" kubectl wait metricsbackend/cluster --for=condition=Available --timeout=180s
step "wait for condition Ready" kubectl wait metricsbackend/cluster --for=condition=Ready --timeout=60s
show kubectl get metricsbackend
show kubectl get apiservices -l metricsbackend.io/backend=cluster

title "Metrics, on both versions"
step "wait for the first pod metrics" until_true 60 sh -c 'test -n "$(kubectl top pods -A --no-headers)"'
show kubectl top nodes
show kubectl top pods -A
show kubectl get --raw /apis/metrics.k8s.io/v1/nodes
echo
show kubectl get --raw /apis/metrics.k8s.io/v1beta1/nodes
echo

title "An autoscaler that scales by them"
kubectl delete -f hack/demo-hpa.yaml --ignore-not-found --wait >/dev/null
step "apply a Deployment that burns CPU, and its HorizontalPodAutoscaler" kubectl apply -f hack/demo-hpa.yaml
step "wait for condition ScalingActive" kubectl wait hpa/burn --for=condition=ScalingActive --timeout=120s
# A watch shows the current data points, and then each new one, until the autoscaler has
# created another pod and that has metrics, too.
printf '\n$ kubectl get pods.v1.metrics.k8s.io --watch\n'
kubectl get pods.v1.metrics.k8s.io --watch &
watch=$!
trap 'kill "$watch" 2>/dev/null || true' EXIT
until_true 120 sh -c 'test "$(kubectl top pods -l app=burn --no-headers 2>/dev/null | wc -l)" -gt 1'
{ kill "$watch"; wait "$watch"; } 2>/dev/null || true
trap - EXIT
show kubectl get hpa burn
show kubectl top pods

title "KEP-5207's checklist, by the kubectl plugin"
export PATH=$PWD/bin:$PATH
show kubectl metrics-backend status
show kubectl metrics-backend verify --expect v1,v1beta1 --timeout 60s

cat <<END

Done in $(clock). The cluster is still running:

  export KUBECONFIG=$KUBECONFIG
  export PATH=$PWD/bin:$bin:\$PATH

make demo-down removes it and all its files from this machine.
END
