#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "launcher/app/emit.h"
#include "launcher/base/build_id.h"
#include "launcher/plan/gpu_memory.h"
#include "launcher/plan/memory_copies.h"

namespace strait::app {
namespace {

// Resources of a pod. All pods are equal, so this is the maximum over the hosts.
struct PodShare {
  std::int64_t processes = 0;
  std::int64_t cores = 0;
  std::int64_t bytes = 0;
};

PodShare largest_pod(const plan::Plan& plan) {
  std::vector<PodShare> pods(plan.hosts.size());
  for (const plan::Plan::Process& process : plan.processes) {
    PodShare& pod = pods.at(process.host_index);
    ++pod.processes;
    pod.cores += process.threads;
  }
  for (std::size_t i = 0; i < pods.size(); ++i) {
    pods[i].bytes = plan::host_memory_needed(plan, i) + plan::held_bytes(plan, i);
  }
  PodShare most;
  for (const PodShare& pod : pods) {
    most.processes = std::max(most.processes, pod.processes);
    most.cores = std::max(most.cores, pod.cores);
    most.bytes = std::max(most.bytes, pod.bytes);
  }
  return most;
}

// Memory of libtorch in each process, and disk for the files that a host receives.
constexpr std::int64_t kProcessBytes = std::int64_t{1} << 30U;

constexpr const char* kPodManifest =
    R"(# 1. Put the name of an image of yours, with this build of strait in its PATH, into `image`.
# 2. Where pods can reach it (hosts.address), start the launcher; it writes a token for each pod
#    and waits {wait} s for all of them:
#      {run}
# 3. kubectl create secret generic {name}-tokens --from-file=runs/{run_name}/join
#    kubectl apply -f THIS-FILE
# Tokens are good for one start: to start again, delete the Job and the secret, and begin with 2.
apiVersion: v1
kind: Service
metadata:
  name: {name}
spec:
  clusterIP: None
  selector:
    batch.kubernetes.io/job-name: {name}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
spec:
  completionMode: Indexed
  completions: {pods}
  parallelism: {pods}
  backoffLimit: 0
  template:
    spec:
      subdomain: {name}
      restartPolicy: Never
      containers:
        - name: strait
          image: "strait:{build}"
          command: ["strait", "join", "/strait.token"]
          env:
            - name: HOST_INDEX
              valueFrom:
                fieldRef:
                  fieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']"
          resources:
            requests:
              cpu: {cores}
              memory: "{memory}Mi"
{gpus}          volumeMounts:
            - name: tokens
              mountPath: /strait.token
              subPathExpr: "$(HOST_INDEX).token"  # no pod sees the token of another one
              readOnly: true
      volumes:
        - name: tokens
          secret:
            secretName: {name}-tokens
            defaultMode: 256  # 0400
)";

}  // namespace

std::string kubernetes_name(const std::string& run) {
  std::string name;
  for (const char c : run.substr(0, 40)) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool kept = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    name += kept ? c : upper ? static_cast<char>(c - 'A' + 'a') : '-';
  }
  name.erase(name.find_last_not_of('-') + 1);
  // A service's name begins with a letter.
  return name.empty() || (name[0] >= '0' && name[0] <= '9') ? "run-" + name : name;
}

std::string kubernetes_job(const plan::Plan& plan, const std::string& run_command) {
  const PodShare pod = largest_pod(plan);
  const bool gpus = plan.recipe.model.device == recipe::Device::cuda;
  return fmt::format(
      kPodManifest, fmt::arg("wait", plan.recipe.hosts.join_wait), fmt::arg("run", run_command),
      fmt::arg("name", kubernetes_name(plan.recipe.name)), fmt::arg("run_name", plan.recipe.name),
      fmt::arg("pods", plan.hosts.size()), fmt::arg("build", base::build_id()),
      fmt::arg("cores", pod.cores),
      fmt::arg("memory", (pod.bytes + pod.processes * kProcessBytes) >> 20U),
      fmt::arg("gpus", gpus ? fmt::format("            limits:\n              nvidia.com/gpu: {}\n",
                                          pod.processes)
                            : ""));
}

}  // namespace strait::app
