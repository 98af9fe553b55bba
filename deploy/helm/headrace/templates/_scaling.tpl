{{/* dict root, query, threshold, metricType, name: a trigger by Prometheus. An empty answer counts as a failure, not as
nothing to do: see `fallback`. */}}
{{- define "headrace.prometheusTrigger" -}}
{{- $prometheus := .root.Values.autoscaling.prometheus -}}
- type: prometheus
  name: {{ .name }}
  metricType: {{ .metricType }}
  metadata:
    serverAddress: {{ $prometheus.serverAddress | quote }}
    query: {{ .query | quote }}
    threshold: {{ include "headrace.text" .threshold | quote }}
    activationThreshold: "0"
    ignoreNullValues: "false"
    {{- with $prometheus.authentication.modes }}
    authModes: {{ . | quote }}
    {{- end }}
  {{- with $prometheus.authentication.name }}
  authenticationRef: {name: {{ . | quote }}}
  {{- end }}
{{- end -}}

{{/* dict matchers, metric, and model (slug): a selector with the installation's own matchers. */}}
{{- define "headrace.series" -}}
{{- $matchers := list -}}
{{- with .model }}{{ $matchers = append $matchers (printf "model=%q" .) }}{{ end -}}
{{- with .matchers }}{{ $matchers = append $matchers . }}{{ end -}}
{{ .metric }}{{ with $matchers }}{ {{- join "," . -}} }{{ end }}
{{- end -}}

{{/* Where metrics cannot be had, everybody stays: KEDA alone would take that for idle and go to zero. */}}
{{- define "headrace.fallback" -}}
failureThreshold: 3
replicas: 1
behavior: currentReplicas
{{- end -}}

{{/* dict root, component, model, pollingSeconds: the head of a ScaledObject. */}}
{{- define "headrace.scaledObject" -}}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{ include "headrace.objectName" . | quote }}
  labels:
    {{- include "headrace.labels" . | nindent 4 }}
spec:
  scaleTargetRef: {name: {{ include "headrace.objectName" . | quote }}}
  pollingInterval: {{ .root.Values.autoscaling.pollingSeconds }}
  fallback:
    {{- include "headrace.fallback" . | nindent 4 }}
{{- end -}}
