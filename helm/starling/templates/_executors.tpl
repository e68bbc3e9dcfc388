{{/*
Executors of a Spark job in pods of their own. The driver creates them from a template, and Spark adds resources, addresses and local
directories. Input of the templates here, except for `use`: the component of the driver.
*/}}

{{- define "starling.executors.properties" -}}
{{- $executors := .values.executors }}
spark.kubernetes.namespace: {{ .root.Release.Namespace | quote }}
spark.kubernetes.container.image: {{ include "starling.component.image" . | quote }}
spark.kubernetes.container.image.pullPolicy: {{ .root.Values.image.pullPolicy | quote }}
spark.kubernetes.authenticate.executor.serviceAccountName: {{ include "starling.component.serviceAccountName" . | quote }}
spark.kubernetes.executor.podTemplateFile: /etc/starling/executor/pod.yaml
spark.kubernetes.executor.podTemplateContainerName: executor
spark.kubernetes.executor.request.cores: {{ toString $executors.cpu | quote }}
spark.executor.instances: {{ $executors.instances | int | quote }}
spark.executor.cores: {{ $executors.cores | int | quote }}
spark.executor.memory: {{ $executors.memory | quote }}
spark.executor.memoryOverhead: {{ $executors.memoryOverhead | quote }}
# The policies of the network name these ports.
spark.driver.port: "7078"
spark.driver.blockManager.port: "7079"
spark.blockManager.port: "7079"
{{- end }}

{{/*
Make the driver of a component create executors, if the values of the component have some. Sets `environment`, `mounts` and `volumes` of
the component. Input: the component, with these three, and `properties` of Spark.
*/}}
{{- define "starling.executors.use" -}}
{{- $component := .component }}
{{- $properties := .properties }}
{{- if gt (int $component.values.executors.instances) 0 }}
{{- $properties = merge (dict) $properties (include "starling.executors.properties" $component | fromYaml) }}
{{- $_ := set $component.environment "STARLING_SPARK_MASTER" "k8s://https://kubernetes.default.svc" }}
{{- $_ := set $component "executors" true }}
{{- $_ := set $component "token" true }}
{{- $_ := set $component "addressed" true }}
{{- $_ := set $component "mounts" (append $component.mounts (include "starling.executors.mount" $component | fromYaml)) }}
{{- $_ := set $component "volumes" (append $component.volumes (include "starling.executors.volume" $component | fromYaml)) }}
{{- end }}
{{- with $properties }}
{{- $_ := set $component.environment "STARLING_SPARK_PROPERTIES" . }}
{{- end }}
{{- end }}

{{/* Where the driver has the template. */}}
{{- define "starling.executors.mount" -}}
name: executor
mountPath: /etc/starling/executor
readOnly: true
{{- end }}

{{- define "starling.executors.volume" -}}
name: executor
configMap:
  name: {{ include "starling.component.fullname" . }}-executor
{{- end }}

{{- define "starling.executors.selector" -}}
{{ include "starling.releaseSelector" .root }}
app.kubernetes.io/component: {{ .name }}-executor
{{- end }}

{{- define "starling.executors.podTemplate" -}}
apiVersion: v1
kind: Pod
metadata:
  labels: {{- include "starling.executors.selector" . | nindent 4 }}
    app.kubernetes.io/part-of: starling
    {{- with merge (dict) .values.podLabels .root.Values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with merge (dict) .values.podAnnotations .root.Values.commonAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with .root.Values.image.pullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .values.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  securityContext: {{- include "starling.component.podSecurityContext" . | nindent 4 }}
  {{- with .values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if .root.Values.spreadReplicas }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "starling.executors.selector" . | nindent 10 }}
  {{- end }}
  containers:
    - name: executor
      command: [tini, --, python, -m, starling_spark.submit]
      securityContext: {{- include "starling.component.securityContext" . | nindent 8 }}
      {{- $credentials := include "starling.connectionCredentials" (include "starling.connections" . | fromYaml) | trim }}
      {{- if and .cassandra (include "starling.cassandra.secured" .root) }}
      {{- $credentials = printf "%s\n%s" $credentials (include "starling.cassandra.credentials" (dict "root" .root "secret" (include "starling.cassandra.secretName" .root))) | trim }}
      {{- end }}
      env:
        # The root file system is read-only.
        - name: HOME
          value: /tmp
        {{- with $credentials }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with .values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .values.envFrom }}
      envFrom: {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - name: tmp
          mountPath: /tmp
        {{- with include "starling.certificates" (dict "kind" "mounts" "root" .root "cassandra" .cassandra) | trim }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with .values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: tmp
      emptyDir: {}
    {{- with include "starling.certificates" (dict "kind" "volumes" "root" .root "cassandra" .cassandra) | trim }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with .values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{- define "starling.executors.documents" -}}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "starling.component.fullname" . }}-executor
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "starling.component.labels" . | nindent 4 }}
  {{- with .root.Values.commonAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
data:
  pod.yaml: {{ include "starling.executors.podTemplate" . | quote }}
---
# Spark keeps an executor's properties in a config map, and removes pods and config maps by their label.
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ include "starling.component.fullname" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "starling.component.labels" . | nindent 4 }}
rules:
  - apiGroups: [""]
    resources: [pods, configmaps]
    verbs: [create, get, list, watch, delete, deletecollection]
{{ include "starling.roleBinding" . }}
{{- end }}
