{{- define "headrace.name" -}}
{{ default .Chart.Name .Values.nameOverride }}
{{- end -}}

{{/* The start of every object's name; short enough that the name of a stage and of a model fit behind it. */}}
{{- define "headrace.fullname" -}}
{{- $name := include "headrace.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- $full = default $full .Values.fullnameOverride | trunc 28 -}}
{{- regexReplaceAll "-+$" $full "" -}}
{{- end -}}

{{/* dict root, component, and for inference model: what picks the pods of one Deployment. In quotes, as all that people
may name: YAML takes 1e3, no or null for something else. */}}
{{- define "headrace.selector" -}}
app.kubernetes.io/name: {{ include "headrace.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- with .model }}
model: {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "headrace.labels" -}}
{{ include "headrace.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{/* dict value (the name of it), labels, beside (dict of headrace.labels): those that people want besides. A key that
comes twice is not YAML. */}}
{{- define "headrace.moreLabels" -}}
{{- $own := include "headrace.labels" .beside | fromYaml -}}
{{- range $key, $_ := .labels -}}
{{- if hasKey $own $key -}}{{ fail (printf "%s: %s is a label that the chart sets itself" $.value $key) }}{{- end -}}
{{- end -}}
{{- with .labels }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- define "headrace.objectName" -}}
{{ include "headrace.fullname" .root }}-{{ .component }}{{ with .model }}-{{ . }}{{ end }}
{{- end -}}

{{- define "headrace.image" -}}
{{ .image.repository }}:{{ default .root.Chart.AppVersion .image.tag }}
{{- end -}}

{{- define "headrace.serviceAccount" -}}
{{ default (include "headrace.fullname" .) .Values.serviceAccount.name }}
{{- end -}}

{{/* One model with the defaults behind it, as YAML. Maps of a model go over those of the defaults, lists replace them. */}}
{{- define "headrace.model" -}}
{{- $empty := dict "engineOptions" dict "hfTokenSecret" dict "autoscaling" dict -}}
{{- $model := mergeOverwrite $empty (deepCopy .root.Values.inference.defaults) .model -}}
{{- if not $model.servedName }}{{ $_ := set $model "servedName" $model.name }}{{ end -}}
{{- /* The slug of the name, as workers make it: the label `model` of all metrics. */ -}}
{{- $slug := regexReplaceAll "[^A-Za-z0-9_-]" ($model.servedName | trim | trimAll "/") "-" -}}
{{- $_ := set $model "slug" (default "model" $slug) -}}
{{- $scaling := mergeOverwrite (deepCopy .root.Values.autoscaling.inference) $model.autoscaling -}}
{{- $_ := set $model "autoscaling" $scaling -}}
{{- $_ := set $model "scaled" (and .root.Values.autoscaling.enabled $scaling.enabled) -}}
{{- if and (gt (int $model.gpus) 1) (not (hasKey $model.engineOptions "tensor_parallel_size")) -}}
{{- $_ := set $model.engineOptions "tensor_parallel_size" (int $model.gpus) -}}
{{- end -}}
{{ toYaml $model }}
{{- end -}}
