{{/*
The pod of a stage. A dict: root, component, model (inference only), values (of the stage or model), image,
graceSeconds, startup (probe, as YAML), settings, and as YAML lists env, mounts, volumes.
*/}}
{{- define "headrace.pod" -}}
{{- $root := .root -}}
metadata:
  labels:
    {{- include "headrace.labels" . | nindent 4 }}
  {{- with .values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "headrace.serviceAccount" $root | quote }}
  automountServiceAccountToken: false
  # Otherwise the service's own variables (HEADRACE_EDGE_PORT=tcp://…) look like settings.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ add .graceSeconds 15 }}
  securityContext:
    {{- include "headrace.podSecurity" . | nindent 4 }}
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- with .values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if $root.Values.topologySpread.enabled }}
  topologySpreadConstraints:
    {{- range $root.Values.topologySpread.keys }}
    - maxSkew: 1
      topologyKey: {{ . | quote }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "headrace.selector" $ | nindent 10 }}
      matchLabelKeys: [pod-template-hash]
    {{- end }}
  {{- end }}
  containers:
    - name: {{ .component }}
      image: {{ include "headrace.image" . | quote }}
      imagePullPolicy: {{ .image.pullPolicy | quote }}
      args: [stage, {{ .component }}]
      securityContext:
        {{- include "headrace.containerSecurity" . | nindent 8 }}
      env:
        {{- $own := printf "%s\n%s" (include "headrace.stageEnvironment" .) (default "" .env) }}
        {{- $whose := ternary (printf "inference model %s: " .model) (printf "%s." .component) (hasKey . "model") }}
        {{- $it := dict "root" $root "role" .component "own" $own "section" .component "settings" .settings }}
        {{- include "headrace.environment" (set $it "from" (printf "%ssettings" $whose)) | nindent 8 }}
      ports:
        - {name: health, containerPort: 9090}
        {{- if eq .component "edge" }}
        - {name: http, containerPort: 8000}
        {{- end }}
      startupProbe:
        {{- .startup | nindent 8 }}
      livenessProbe:
        httpGet: {path: /live, port: health}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 3
      readinessProbe:
        httpGet: {path: /ready, port: health}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 2
      resources:
        {{- toYaml .values.resources | nindent 8 }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        {{- include "headrace.identityMount" $root | nindent 8 }}
        {{- with .mounts }}
        {{- . | nindent 8 }}
        {{- end }}
  volumes:
    - name: tmp
      emptyDir: {}
    {{- include "headrace.identityVolume" (dict "root" $root "role" .component) | nindent 4 }}
    {{- with .volumes }}
    {{- . | nindent 4 }}
    {{- end }}
{{- end -}}
