{{/* Everything of this release that runs for good, as JSON: a list of {component, model}. */}}
{{- define "headrace.parts" -}}
{{- $parts := list -}}
{{- range list "edge" "preprocess" "schedule" "postprocess" -}}
{{- if (index $.Values .).enabled -}}{{ $parts = append $parts (dict "component" . "downloads" false) }}{{- end -}}
{{- end -}}
{{- range .Values.inference.models -}}
{{- $downloads := not (hasPrefix "/" .model) -}}
{{- $parts = append $parts (dict "component" "inference" "model" .name "downloads" $downloads) -}}
{{- end -}}
{{ toJson $parts }}
{{- end -}}
