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

{{/* dict root, role: what the stages and `headrace init` are told alike: how to reach NATS, who they are, how to log. */}}
{{- define "headrace.environment" -}}
- name: HEADRACE_NATS_URL
  value: {{ .root.Values.nats.url | quote }}
{{- if .root.Values.nats.identity.enabled }}
- name: HEADRACE_NATS_IDENTITY
  value: /identity/{{ .role }}
{{- end }}
- name: HEADRACE_LOG_LEVEL
  value: {{ .root.Values.log.level }}
- name: HEADRACE_LOG_FORMAT
  value: {{ .root.Values.log.format }}
{{- with .root.Values.otlp.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ . | quote }}
{{- end }}
{{- with .root.Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* dict root, role: the secret of one role. Kubernetes makes its files readable for the pod's group alone;
the folder's name says which role it is. */}}
{{- define "headrace.identityVolume" -}}
{{- if .root.Values.nats.identity.enabled }}
- name: identity
  secret:
    secretName: {{ .root.Values.nats.identity.secretPrefix }}-{{ .role }}
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
