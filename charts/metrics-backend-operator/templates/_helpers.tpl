{{- /*
The labels of every object: (list $ further), of which the further ones go before commonLabels. Not of pods, which would be
rolled by a new version of the chart.
*/ -}}
{{- define "metrics-backend-operator.labels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/part-of: metrics-backend
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | replace "+" "_" | trunc 63 | quote }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with merge dict (index . 1 | default dict) ($root.Values.commonLabels | default dict) }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* An image: (list $ .Values.image). */ -}}
{{- define "metrics-backend-operator.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end -}}
{{- end -}}
