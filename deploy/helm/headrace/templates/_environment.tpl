{{/* A setting's value as text. Numbers reach templates as floats, which Go would write as 1.073741824e+09. */}}
{{- define "headrace.text" -}}
{{- if or (kindIs "map" .) (kindIs "slice" .) -}}{{ toJson . }}
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}{{ printf "%.0f" . }}
{{- else -}}{{ . }}
{{- end -}}
{{- end -}}

{{/* dict section, settings: one variable for each. */}}
{{- define "headrace.settings" -}}
{{- $section := .section -}}
{{- range $field, $value := .settings }}
- name: HEADRACE_{{ upper $section }}_{{ upper $field }}
  value: {{ include "headrace.text" $value | quote }}
{{- end }}
{{- end -}}

{{/* dict root, role, own (more of the chart's, a YAML list), section, settings, from (where these stand in the values):
all variables of a container. Kubernetes takes one that comes twice, and the last counts, beside ports and volumes that
were made for the first: so it is refused. */}}
{{- define "headrace.environment" -}}
{{- $chart := printf "%s\n%s" (include "headrace.commonEnvironment" .) .own | trim -}}
{{- $settings := include "headrace.settings" . | trim -}}
{{- $known := dict -}}
{{- range $chart | fromYamlArray }}{{ $_ := set $known .name "the chart itself" }}{{ end -}}
{{- range $settings | fromYamlArray -}}
{{- if hasKey $known .name -}}
{{- $field := trimPrefix (printf "HEADRACE_%s_" (upper $.section)) .name | lower -}}
{{- fail (printf "%s.%s: %s is set by %s" $.from $field .name (get $known .name)) -}}
{{- end -}}
{{- $_ := set $known .name $.from -}}
{{- end -}}
{{- range .root.Values.extraEnv -}}
{{- if hasKey $known .name -}}{{ fail (printf "extraEnv: %s is set by %s" .name (get $known .name)) }}{{- end -}}
{{- $_ := set $known .name "extraEnv, too" -}}
{{- end -}}
{{ $chart }}
{{- with .root.Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- with $settings }}
{{ . }}
{{- end }}
{{- end -}}

{{/* dict root, role: what the stages and `headrace init` are told alike: how to reach NATS, who they are, how to log. */}}
{{- define "headrace.commonEnvironment" -}}
- name: HEADRACE_NATS_URL
  value: {{ .root.Values.nats.url | quote }}
{{- if .root.Values.nats.identity.enabled }}
- name: HEADRACE_NATS_IDENTITY
  value: {{ printf "/identity/%s" .role | quote }}
{{- end }}
- name: HEADRACE_LOG_LEVEL
  value: {{ .root.Values.log.level | quote }}
- name: HEADRACE_LOG_FORMAT
  value: {{ .root.Values.log.format | quote }}
{{- with .root.Values.otlp.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* dict graceSeconds: what every stage is told besides. */}}
{{- define "headrace.stageEnvironment" -}}
- name: HEADRACE_GRACE_S
  value: {{ .graceSeconds | quote }}
- name: HEADRACE_HEALTH_HOST
  value: 0.0.0.0
- name: HEADRACE_HEALTH_PORT
  value: "9090"
{{- end -}}

{{/* dict root, role: the secret of one role. Kubernetes makes its files readable for the pod's group alone;
the folder's name says which role it is. */}}
{{- define "headrace.identityVolume" -}}
{{- if .root.Values.nats.identity.enabled }}
- name: identity
  secret:
    secretName: {{ printf "%s-%s" .root.Values.nats.identity.secretPrefix .role | quote }}
    defaultMode: 0440
    items:
      {{- range list "nkey.seed" "cert.pem" "key.pem" "ca.pem" }}
      - {key: {{ . }}, path: {{ $.role }}/{{ . }}}
      {{- end }}
{{- end }}
{{- end -}}

{{- define "headrace.identityMount" -}}
{{- if .Values.nats.identity.enabled }}
- {name: identity, mountPath: /identity, readOnly: true}
{{- end }}
{{- end -}}
