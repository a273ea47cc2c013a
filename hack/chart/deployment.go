// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// deployment replaces fixed settings in config/manager/deployment.yaml by values.
var deployment = []replacement{
	{"\n  replicas: 1\n", "\n  replicas: {{ $.Values.replicas }}\n"},
	{"        app.kubernetes.io/component: operator\n      annotations:\n",
		"        app.kubernetes.io/component: operator\n" +
			"        {{- with merge dict ($.Values.podLabels | default dict) ($.Values.commonLabels | default dict) }}\n        {{- toYaml . | nindent 8 }}\n        {{- end }}\n" +
			"      annotations:\n"},
	{"safe-to-evict-local-volumes: tmp\n    spec:\n",
		"safe-to-evict-local-volumes: tmp\n        {{- with $.Values.podAnnotations }}\n        {{- toYaml . | nindent 8 }}\n        {{- end }}\n    spec:\n" +
			"      {{- with $.Values.imagePullSecrets }}\n      imagePullSecrets:\n      {{- toYaml . | nindent 6 }}\n      {{- end }}\n"},
	{"      priorityClassName: system-cluster-critical\n",
		"      {{- with $.Values.priorityClassName }}\n      priorityClassName: {{ . }}\n      {{- end }}\n"},
	{"      nodeSelector:\n        kubernetes.io/os: linux\n",
		"      {{- with $.Values.nodeSelector }}\n      nodeSelector:\n        {{- toYaml . | nindent 8 }}\n      {{- end }}\n" +
			"      {{- with $.Values.tolerations }}\n      tolerations:\n      {{- toYaml . | nindent 6 }}\n      {{- end }}\n" +
			"      {{- with $.Values.affinity }}\n      affinity:\n        {{- toYaml . | nindent 8 }}\n      {{- end }}\n" +
			"      {{- with $.Values.topologySpreadConstraints }}\n      topologySpreadConstraints:\n      {{- toYaml . | nindent 6 }}\n      {{- end }}\n"},
	{"        runAsUser: 65532\n        runAsGroup: 65532\n",
		"        {{- if not $.Values.userFromPlatform }}\n        runAsUser: 65532\n        runAsGroup: 65532\n        {{- end }}\n"},
	{"        image: metrics-backend/operator:dev\n        imagePullPolicy: IfNotPresent\n",
		"        image: {{ include \"metrics-backend-operator.image\" (list $ $.Values.image) }}\n" +
			"        imagePullPolicy: {{ $.Values.image.pullPolicy }}\n"},
	{"        # Serving may run in other namespaces too; see config/rbac/serving-namespace.\n" +
		"        # - --namespaces=metrics-backend-system,monitoring\n        - -v=1\n",
		"        {{- with $.Values.namespaces }}\n        - --namespaces={{ concat (list $.Release.Namespace) . | uniq | join \",\" }}\n        {{- end }}\n" +
			"        - -v={{ $.Values.logLevel }}\n" +
			"        {{- with $.Values.extraArgs }}\n        {{- toYaml . | nindent 8 }}\n        {{- end }}\n"},
	{"          value: metrics-backend/serving:dev\n",
		"          value: {{ include \"metrics-backend-operator.image\" (list $ $.Values.serving.image) }}\n" +
			"        {{- with $.Values.env }}\n        {{- toYaml . | nindent 8 }}\n        {{- end }}\n"},
	{"        resources:\n          requests:\n            cpu: 10m\n            memory: 64Mi\n          limits:\n            memory: 256Mi\n",
		"        resources:\n          {{- toYaml $.Values.resources | nindent 10 }}\n"},
	{"          mountPath: /tmp\n",
		"          mountPath: /tmp\n        {{- with $.Values.volumeMounts }}\n        {{- toYaml . | nindent 8 }}\n        {{- end }}\n"},
	{"          sizeLimit: 1Mi\n",
		"          sizeLimit: 1Mi\n      {{- with $.Values.volumes }}\n      {{- toYaml . | nindent 6 }}\n      {{- end }}\n"},
}
