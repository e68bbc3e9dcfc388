{{/*
The parts of a pod that every component has. Input: root, name, values, and

  module        the Python module that the container runs
  environment   variables with fixed values, in the component's config map
  secrets       a list of {variable, secret, key}
  cassandra     true: the container gets the credentials
  drain         true: the pod waits before SIGTERM, until no proxy sends it requests
  token         true: the pod calls the Kubernetes API
  addressed     true: the process gets the address of its pod
  more          more text in the checksum that restarts the pods
  isolated      true: the process has no connections to the broker and the registry
  scaled        true: the scaler changes the replicas, and a worker that is scaled in leaves its group
  mounts        a list of {name, mountPath} beside the temporary directory
  volumes       their volumes; a StatefulSet has templates instead
*/}}

{{/* The environment of the config map: connections, the component's own variables, then `settings`, which win. */}}
{{- define "starling.component.environment" -}}
{{- $fixed := dict "STARLING_HTTP__HOST" "0.0.0.0" "STARLING_HTTP__PORT" "8080" "STARLING_LOG_LEVEL" .root.Values.logLevel }}
{{- $connections := dict }}
{{- if not .isolated }}
{{- $connections = merge (dict "STARLING_CLOCK" .root.Values.clock) (include "starling.connectionEnvironment" (include "starling.connections" . | fromYaml) | fromYaml) }}
{{- end }}
{{- $traces := dict }}
{{- if and .root.Values.traces.endpoint (include "starling.traced" .name) }}
{{- $traces = dict "STARLING_TRACES__ENDPOINT" .root.Values.traces.endpoint "STARLING_TRACES__RATIO" .root.Values.traces.ratio }}
{{- end }}
{{- $cassandra := ternary (include "starling.cassandraEnvironment" .root | fromYaml) (dict) (default false .cassandra) }}
{{- include "starling.environment" (merge (dict) (default (dict) .values.settings) (default (dict) .environment) $connections $cassandra $traces $fixed) | trim }}
{{- end }}

{{- define "starling.component.configMap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "starling.component.fullname" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "starling.component.labels" . | nindent 4 }}
  {{- with .root.Values.commonAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
data: {{- include "starling.component.environment" . | nindent 2 }}
{{- end }}

{{- define "starling.component.serviceAccount" -}}
{{- if .values.serviceAccount.create -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "starling.component.serviceAccountName" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "starling.component.labels" . | nindent 4 }}
  {{- with merge (dict) (default (dict) .values.serviceAccount.annotations) (default (dict) .root.Values.commonAnnotations) }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end }}
{{- end }}

{{/* Secrets that the chart creates, in the checksum that restarts the pods. */}}
{{- define "starling.component.checksum" -}}
{{- $secrets := list }}
{{- if .cassandra }}{{ $secrets = append $secrets .root.Values.cassandra.auth }}{{ end }}
{{- if eq .name "ingest" }}{{ $secrets = append $secrets .values.writeKeys }}{{ end }}
{{- if eq .name "api" }}{{ $secrets = append $secrets .values.tokens }}{{ end }}
{{- printf "%s%s%s%s" (include "starling.component.environment" .) (toJson $secrets) (default "" .more) .root.Values.secretsRevision | sha256sum }}
{{- end }}

{{/* Without the version of the chart: a new chart with the same image restarts no pod. */}}
{{- define "starling.component.podLabels" -}}
{{ include "starling.component.selector" . }}
app.kubernetes.io/part-of: starling
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- with .values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "starling.component.podMetadata" -}}
labels: {{- include "starling.component.podLabels" . | nindent 2 }}
annotations:
  checksum/config: {{ include "starling.component.checksum" . }}
  {{- with merge (dict) (default (dict) .values.podAnnotations) (default (dict) .root.Values.commonAnnotations) }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "starling.component.podSecurityContext" -}}
{{- toYaml (mergeOverwrite (deepCopy .root.Values.podSecurityContext) .values.podSecurityContext) }}
{{- end }}

{{- define "starling.component.securityContext" -}}
{{- toYaml (mergeOverwrite (deepCopy .root.Values.containerSecurityContext) .values.securityContext) }}
{{- end }}

{{/*
Soft constraints unless the component has its own: replicas on different zones and nodes where possible. One of its own without a
labelSelector, which would match no pod, is for the pods of the component.
*/}}
{{- define "starling.component.spread" -}}
{{- if .values.topologySpreadConstraints }}
{{- $selector := dict "matchLabels" (include "starling.component.selector" . | fromYaml) }}
{{- range .values.topologySpreadConstraints }}
- {{- toYaml (hasKey . "labelSelector" | ternary . (merge (dict "labelSelector" $selector) .)) | nindent 2 }}
{{- end }}
{{- else if .root.Values.spreadReplicas }}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "starling.component.selector" $ | nindent 6 }}
{{- end }}
{{- end }}
{{- end }}

{{/* Scheduling and identity; the containers and volumes follow it. */}}
{{- define "starling.component.podSpec" -}}
serviceAccountName: {{ include "starling.component.serviceAccountName" . }}
automountServiceAccountToken: {{ default false .token }}
# The variables of service links would have the prefix of the settings, STARLING_.
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
terminationGracePeriodSeconds: {{ .values.terminationGracePeriodSeconds | int }}
securityContext: {{- include "starling.component.podSecurityContext" . | nindent 2 }}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "starling.component.spread" . | trim }}
topologySpreadConstraints: {{- . | nindent 2 }}
{{- end }}
{{- with .values.initContainers }}
initContainers: {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: {{ .name }}
    image: {{ include "starling.component.image" . | quote }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    command: [tini, --, python, -m, {{ .module }}]
    securityContext: {{- include "starling.component.securityContext" . | nindent 6 }}
    env:
      - name: STARLING_INSTANCE_ID
        valueFrom:
          fieldRef:
            fieldPath: metadata.name
      {{- if .addressed }}
      - name: STARLING_SPARK_DRIVER_HOST
        valueFrom:
          fieldRef:
            fieldPath: status.podIP
      {{- end }}
      {{- range .secrets }}
      - name: {{ .variable }}
        valueFrom:
          secretKeyRef:
            name: {{ .secret }}
            key: {{ .key }}
      {{- end }}
      {{- if not .isolated }}
      {{- with include "starling.connectionCredentials" (include "starling.connections" . | fromYaml) | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- end }}
      {{- if and .cassandra (include "starling.cassandra.secured" .root) }}
      {{- include "starling.cassandra.credentials" (dict "root" .root "secret" (include "starling.cassandra.secretName" .root)) | nindent 6 }}
      {{- end }}
      {{- with .values.extraEnv }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    envFrom:
      - configMapRef:
          name: {{ include "starling.component.fullname" . }}
      {{- with .values.envFrom }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    ports:
      - name: http
        containerPort: 8080
    {{- range $probe, $path := dict "startupProbe" "/healthz" "livenessProbe" "/healthz" "readinessProbe" "/readyz" }}
    {{- with get $.values $probe }}
    {{ $probe }}:
      httpGet:
        path: {{ $path }}
        port: http
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- end }}
    {{- if .drain }}
    lifecycle:
      preStop:
        sleep:
          seconds: {{ .values.preStopSeconds | int }}
    {{- else if .scaled }}
    lifecycle:
      preStop:
        exec:
          command: [python, -m, starling_stream.worker.scaled_in, {{ include "starling.component.fullname" . }}]
    {{- end }}
    {{- with .values.resources }}
    resources: {{- toYaml . | nindent 6 }}
    {{- end }}
    volumeMounts:
      - name: tmp
        mountPath: /tmp
      {{- with include "starling.certificates" (dict "kind" "mounts" "root" .root "cassandra" .cassandra "isolated" .isolated) | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- with .mounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      {{- with .values.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
  {{- with .values.extraContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumes:
  - name: tmp
    emptyDir: {}
  {{- with include "starling.certificates" (dict "kind" "volumes" "root" .root "cassandra" .cassandra "isolated" .isolated) | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with .volumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Each of `objects` that is not empty, as a document. */}}
{{- define "starling.component.documents" -}}
{{- range .objects }}
{{- with include (printf "starling.component.%s" .) $.component | trim }}
---
{{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* A stateless component. */}}
{{- define "starling.component.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "starling.component.fullname" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "starling.component.labels" . | nindent 4 }}
  {{- with include "starling.component.annotations" . | trim }}
  {{- . | nindent 2 }}
  {{- end }}
spec:
  {{- if eq (include "starling.autoscaler" .) "none" }}
  replicas: {{ .values.replicas | int }}
  {{- end }}
  revisionHistoryLimit: 3
  strategy: {{- toYaml .values.strategy | nindent 4 }}
  selector:
    matchLabels: {{- include "starling.component.selector" . | nindent 6 }}
  template:
    metadata: {{- include "starling.component.podMetadata" . | nindent 6 }}
    spec: {{- include "starling.component.podSpec" . | nindent 6 }}
{{- end }}

{{/*
The replicas of a StatefulSet. An upgrade keeps what the scaler has set: without a number Kubernetes would set 1, and that of the values
would undo the steps since the installation. Without access to the cluster (helm template, GitOps) it is the number of the values.
*/}}
{{- define "starling.component.statefulReplicas" -}}
{{- $replicas := .values.replicas }}
{{- if .scaled }}
{{- $found := lookup "apps/v1" "StatefulSet" .root.Release.Namespace (include "starling.component.fullname" .) }}
{{- $replicas = dig "spec" "replicas" $replicas $found }}
{{- end }}
{{- $replicas | int }}
{{- end }}

{{/* A worker with local stores. The pod's name is its id in the group, so a restarted pod keeps its partitions. */}}
{{- define "starling.component.statefulSet" -}}
{{- $storage := .values.persistence }}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ include "starling.component.fullname" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "starling.component.labels" . | nindent 4 }}
  {{- with include "starling.component.annotations" . | trim }}
  {{- . | nindent 2 }}
  {{- end }}
spec:
  replicas: {{ include "starling.component.statefulReplicas" . }}
  serviceName: {{ include "starling.component.fullname" . }}
  podManagementPolicy: Parallel
  revisionHistoryLimit: 3
  updateStrategy: {{- toYaml .values.updateStrategy | nindent 4 }}
  {{- if $storage.enabled }}
  persistentVolumeClaimRetentionPolicy: {{- toYaml $storage.retention | nindent 4 }}
  {{- end }}
  selector:
    matchLabels: {{- include "starling.component.selector" . | nindent 6 }}
  template:
    metadata: {{- include "starling.component.podMetadata" . | nindent 6 }}
    spec: {{- include "starling.component.podSpec" . | nindent 6 }}
  {{- if $storage.enabled }}
  volumeClaimTemplates:
    - metadata:
        name: state
        labels: {{- include "starling.component.selector" . | nindent 10 }}
        {{- with $storage.annotations }}
        annotations: {{- toYaml . | nindent 10 }}
        {{- end }}
      spec:
        accessModes: {{- toYaml $storage.accessModes | nindent 10 }}
        {{- with $storage.storageClass }}
        storageClassName: {{ . | quote }}
        {{- end }}
        resources:
          requests:
            storage: {{ $storage.size }}
  {{- end }}
{{- end }}

{{/* The Service of a component; `headless` for workers, whose only requests are those of probes and Prometheus. */}}
{{- define "starling.component.service" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "starling.component.fullname" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "starling.component.labels" . | nindent 4 }}
  {{- with merge (dict) (default (dict) (dig "service" "annotations" (dict) .values)) (default (dict) .root.Values.commonAnnotations) }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- if .headless }}
  clusterIP: None
  publishNotReadyAddresses: true
  {{- else }}
  type: {{ .values.service.type }}
  {{- with .values.service.trafficDistribution }}
  trafficDistribution: {{ . }}
  {{- end }}
  {{- with .values.service.loadBalancerClass }}
  loadBalancerClass: {{ . }}
  {{- end }}
  {{- with .values.service.loadBalancerSourceRanges }}
  loadBalancerSourceRanges: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .values.service.externalTrafficPolicy }}
  externalTrafficPolicy: {{ . }}
  {{- end }}
  {{- end }}
  ports:
    - name: http
      port: {{ ternary 8080 (int (dig "service" "port" 8080 .values)) (default false .headless) }}
      targetPort: http
      {{- with dig "service" "nodePort" nil .values }}
      nodePort: {{ int . }}
      {{- end }}
  selector: {{- include "starling.component.selector" . | nindent 4 }}
{{- end }}

{{/* At most one replica is evicted at a time; a pod that is not ready never blocks the drain of a node. */}}
{{- define "starling.component.podDisruptionBudget" -}}
{{- with .values.podDisruptionBudget }}
{{- if .enabled -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "starling.component.fullname" $ }}
  namespace: {{ $.root.Release.Namespace }}
  labels: {{- include "starling.component.labels" $ | nindent 4 }}
  {{- with $.root.Values.commonAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- if not (kindIs "invalid" .minAvailable) }}
  minAvailable: {{ .minAvailable }}
  {{- else }}
  maxUnavailable: {{ .maxUnavailable }}
  {{- end }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "starling.component.selector" $ | nindent 6 }}
{{- end }}
{{- end }}
{{- end }}

{{/* A HorizontalPodAutoscaler, or KEDA's ScaledObject for a consumer: `triggers` are consumer groups and their lag. */}}
{{- define "starling.component.autoscaler" -}}
{{- $kind := include "starling.autoscaler" . }}
{{- $scaling := .values.autoscaling }}
{{- if eq $kind "hpa" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ include "starling.component.fullname" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "starling.component.labels" . | nindent 4 }}
  {{- with .root.Values.commonAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ include "starling.component.fullname" . }}
  minReplicas: {{ $scaling.minReplicas | int }}
  maxReplicas: {{ $scaling.maxReplicas | int }}
  metrics:
    {{- with $scaling.targetCPUUtilizationPercentage }}
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ int . }}
    {{- end }}
    {{- with $scaling.metrics }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $scaling.behavior }}
  behavior: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- else if eq $kind "keda" -}}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{ include "starling.component.fullname" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "starling.component.labels" . | nindent 4 }}
  {{- with .root.Values.commonAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  scaleTargetRef:
    name: {{ include "starling.component.fullname" . }}
  # At least 1: KEDA starts no replica from 0 for a group that has never committed.
  minReplicaCount: {{ $scaling.minReplicas | int }}
  maxReplicaCount: {{ $scaling.maxReplicas | int }}
  pollingInterval: {{ $scaling.keda.pollingIntervalSeconds | int }}
  cooldownPeriod: {{ $scaling.keda.cooldownSeconds | int }}
  # While KEDA cannot read the lag.
  fallback:
    failureThreshold: 3
    replicas: {{ .values.replicas | int }}
  {{- with $scaling.behavior }}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior: {{- toYaml . | nindent 8 }}
  {{- end }}
  triggers:
    {{- range .groups }}
    - type: kafka
      metadata:
        bootstrapServers: {{ $.root.Values.kafka.brokers | quote }}
        consumerGroup: {{ . | quote }}
        lagThreshold: {{ $scaling.keda.lagPerReplica | int | quote }}
        offsetResetPolicy: earliest
        allowIdleConsumers: "false"
      {{- with $scaling.keda.authenticationRef }}
      authenticationRef: {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
    {{- with $scaling.keda.triggers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- end }}

{{/* An Ingress and an HTTPRoute of a service that clients from outside reach. */}}
{{- define "starling.component.ingress" -}}
{{- with .values.ingress }}
{{- if .enabled -}}
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: {{ include "starling.component.fullname" $ }}
  namespace: {{ $.root.Release.Namespace }}
  labels: {{- include "starling.component.labels" $ | nindent 4 }}
  {{- with merge (dict) (default (dict) .annotations) (default (dict) $.root.Values.commonAnnotations) }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- with .className }}
  ingressClassName: {{ . }}
  {{- end }}
  {{- with .tls }}
  tls: {{- toYaml . | nindent 4 }}
  {{- end }}
  rules:
    {{- range .hosts }}
    - host: {{ .host | quote }}
      http:
        paths:
          {{- range .paths }}
          - path: {{ .path }}
            pathType: {{ .pathType }}
            backend:
              service:
                name: {{ include "starling.component.fullname" $ }}
                port:
                  name: http
          {{- end }}
    {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "starling.component.httpRoute" -}}
{{- with .values.httpRoute }}
{{- if .enabled -}}
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: {{ include "starling.component.fullname" $ }}
  namespace: {{ $.root.Release.Namespace }}
  labels: {{- include "starling.component.labels" $ | nindent 4 }}
  {{- with merge (dict) (default (dict) .annotations) (default (dict) $.root.Values.commonAnnotations) }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  parentRefs: {{- toYaml .parentRefs | nindent 4 }}
  {{- with .hostnames }}
  hostnames: {{- toYaml . | nindent 4 }}
  {{- end }}
  rules:
    - matches: {{- toYaml .matches | nindent 8 }}
      {{- with .filters }}
      filters: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .timeouts }}
      timeouts: {{- toYaml . | nindent 8 }}
      {{- end }}
      backendRefs:
        - name: {{ include "starling.component.fullname" $ }}
          port: {{ $.values.service.port | int }}
{{- end }}
{{- end }}
{{- end }}

{{/* `job` is the name by which the alert rules know the component, whatever the name of the release. */}}
{{- define "starling.component.serviceMonitor" -}}
{{- with .root.Values.metrics.serviceMonitor }}
{{- if .enabled -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ include "starling.component.fullname" $ }}
  namespace: {{ default $.root.Release.Namespace .namespace }}
  labels:
    {{- include "starling.component.labels" $ | nindent 4 }}
    {{- with .labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $.root.Values.commonAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  namespaceSelector:
    matchNames: [{{ $.root.Release.Namespace }}]
  selector:
    matchLabels: {{- include "starling.component.selector" $ | nindent 6 }}
  endpoints:
    - port: http
      path: /metrics
      interval: {{ .interval }}
      scrapeTimeout: {{ .scrapeTimeout }}
      relabelings:
        - targetLabel: job
          action: replace
          replacement: starling-{{ $.name }}
        {{- with .relabelings }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .metricRelabelings }}
      metricRelabelings: {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/*
The pods of a Job. Input: root, name, values, and

  module        the Python module that the container runs
  arguments     its arguments
  environment   variables with fixed values, beside the connections
  cassandra     true: the container gets the connection and the login
  secret        the secret with the login of Cassandra
  account       the component with the service account
  named         true: the process gets the name of its pod
  addressed     true: it gets the address of its pod
  token         true: the pod calls the Kubernetes API
  secrets       a list of {variable, secret, key}
  mounts, volumes  as above
*/}}
{{- define "starling.once.podTemplate" -}}
{{- $cassandra := ternary (include "starling.cassandraEnvironment" .root | fromYaml) (dict) .cassandra }}
{{- $connections := merge (include "starling.connectionEnvironment" (include "starling.connections" . | fromYaml) | fromYaml) $cassandra -}}
metadata:
  labels: {{- include "starling.component.podLabels" . | nindent 4 }}
  {{- with merge (dict) .values.podAnnotations .root.Values.commonAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  restartPolicy: Never
  serviceAccountName: {{ include "starling.component.serviceAccountName" . }}
  automountServiceAccountToken: {{ default false .token }}
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
  {{- if .acls }}
  initContainers:
    # The topics are created with rights that this container creates.
    - name: acls
      image: {{ include "starling.component.image" . | quote }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      command: [tini, --, python, -m, starling_common.kafka.access.deploy]
      securityContext: {{- include "starling.component.securityContext" . | nindent 8 }}
      env:
        {{- range $variable, $value := include "starling.connectionEnvironment" (include "starling.acls.root" .root | fromYaml) | fromYaml }}
        - name: {{ $variable }}
          value: {{ $value | quote }}
        {{- end }}
        - name: STARLING_ACLS_PRINCIPAL
          value: {{ .root.Values.kafka.acls.principal | quote }}
        - name: STARLING_ACLS_PRUNE
          value: {{ .root.Values.kafka.acls.prune | quote }}
        {{- with include "starling.connectionCredentials" (include "starling.acls.root" .root | fromYaml) | trim }}
        {{- . | nindent 8 }}
        {{- end }}
      {{- with .values.resources }}
      resources: {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - name: tmp
          mountPath: /tmp
        {{- with include "starling.certificates" (dict "kind" "mounts" "root" .root "cassandra" false) | trim }}
        {{- . | nindent 8 }}
        {{- end }}
  {{- end }}
  containers:
    - name: {{ .name }}
      image: {{ include "starling.component.image" . | quote }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      command: [tini, --, python, -m, {{ .module }}]
      {{- with .arguments }}
      args: {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext: {{- include "starling.component.securityContext" . | nindent 8 }}
      env:
        {{- if .named }}
        - name: STARLING_INSTANCE_ID
          valueFrom:
            fieldRef:
              fieldPath: metadata.name
        {{- end }}
        {{- if .addressed }}
        - name: STARLING_SPARK_DRIVER_HOST
          valueFrom:
            fieldRef:
              fieldPath: status.podIP
        {{- end }}
        {{- range .secrets }}
        - name: {{ .variable }}
          valueFrom:
            secretKeyRef:
              name: {{ .secret }}
              key: {{ .key }}
        {{- end }}
        {{- range $variable, $value := include "starling.environment" (merge .environment $connections) | fromYaml }}
        - name: {{ $variable }}
          value: {{ $value | quote }}
        {{- end }}
        {{- with include "starling.connectionCredentials" (include "starling.connections" . | fromYaml) | trim }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- if and .cassandra (include "starling.cassandra.secured" .root) }}
        {{- include "starling.cassandra.credentials" (dict "root" .root "secret" .secret) | nindent 8 }}
        {{- end }}
        {{- with .values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .values.envFrom }}
      envFrom: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.resources }}
      resources: {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - name: tmp
          mountPath: /tmp
        {{- with include "starling.certificates" (dict "kind" "mounts" "root" .root "cassandra" .cassandra) | trim }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with .mounts }}
        {{- toYaml . | nindent 8 }}
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
    {{- with .volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with .values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* The Job of a component that the API starts. */}}
{{- define "starling.started.job" -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ include "starling.component.fullname" . }}
  namespace: {{ .root.Release.Namespace }}
  # Without the labels of the release: a tool that prunes what is not in the chart would delete it.
  labels:
    app.kubernetes.io/component: {{ .name }}
    app.kubernetes.io/part-of: starling
    {{- with .root.Values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with include "starling.component.annotations" . | trim }}
  {{- . | nindent 2 }}
  {{- end }}
spec:
  backoffLimit: {{ .values.backoffLimit | int }}
  template: {{- include "starling.once.podTemplate" . | nindent 4 }}
{{- end }}
