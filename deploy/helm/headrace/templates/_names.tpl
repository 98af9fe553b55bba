{{/* The start of every object's name; short enough that the name of a stage and of a model fit behind it. */}}
{{- define "headrace.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 28 | trimSuffix "-" -}}
{{- end -}}

{{/* dict root, component, and for inference model: what picks the pods of one Deployment. */}}
{{- define "headrace.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | trunc 63 }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .model }}
model: {{ . }}
{{- end }}
{{- end -}}

{{- define "headrace.labels" -}}
{{ include "headrace.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
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
{{- $model := mergeOverwrite (deepCopy .root.Values.inference.defaults) .model -}}
{{- if not $model.servedName }}{{ $_ := set $model "servedName" $model.name }}{{ end -}}
{{- /* The slug of the name, as workers make it: the label `model` of all metrics. */ -}}
{{- $_ := set $model "slug" (regexReplaceAll "[^A-Za-z0-9_-]" $model.servedName "-") -}}
{{- if and (gt (int $model.gpus) 1) (not (hasKey $model.engineOptions "tensor_parallel_size")) -}}
{{- $_ := set $model.engineOptions "tensor_parallel_size" (int $model.gpus) -}}
{{- end -}}
{{ toYaml $model }}
{{- end -}}
