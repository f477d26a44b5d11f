#include "launcher/worker/infer.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "framework/store/checkpoint.h"
#include "launcher/planner/checkpoint_weights.h"
#include "launcher/planner/planned_model.h"
#include "launcher/plugin/plugin_file.h"
#include "launcher/worker/compute_device.h"
#include "launcher/worker/data_links.h"
#include "launcher/worker/inference_stage.h"
#include "models/model.h"

namespace strait::worker {
namespace {

// Each part has its own copy of a tied weight.
std::vector<std::unique_ptr<ModelPart>> load_parts(const plan::StageJob& job,
                                                   StageReporter& reporter) {
  const models::ModelConfig config = planner::planned_model(job.plan);
  const planner::CheckpointWeights weights(job.plan.recipe, config, job.resume);
  const at::Device device = compute_device(job);
  const at::NoGradGuard no_grad;
  std::vector<std::unique_ptr<ModelPart>> parts;
  for (const models::LayerRange& layers : job.plan.process(job.process).chunks) {
    auto model = models::make_model(config, layers, at::kFloat, device);
    for (const models::Parameter& parameter : model->parameters()) {
      models::assign(parameter, weights.read(parameter.name));
      reporter.count_progress();
    }
    parts.push_back(std::make_unique<ModelPart>(std::move(model), device,
                                                [&reporter] { reporter.count_progress(); }));
  }
  return parts;
}

// Hands the launcher's requests to the first stage. Drops later ones: the launcher may not know yet
// that the stage has ended or failed.
class RequestForwarder {
 public:
  RequestForwarder(ControlClient& control, InferenceStage& stage) : control_(control) {
    control_.on_inference(
        [&stage](run::InferenceRequest request) { stage.submit(std::move(request)); },
        [&stage] { stage.end(); });
  }
  RequestForwarder(const RequestForwarder&) = delete;
  RequestForwarder& operator=(const RequestForwarder&) = delete;
  ~RequestForwarder() {
    control_.on_inference([](const run::InferenceRequest&) {}, [] {});
  }

 private:
  ControlClient& control_;
};

}  // namespace

store::Step infer(const plan::StageJob& job, net::Node& node, ControlClient& control,
                  StageReporter& reporter) {
  plugin::load_copies(job.plugins);
  DataLinks links(node, job);
  stages::WaitClock waits;
  InferenceStage stage(load_parts(job, reporter), waits, [&](const run::InferenceAnswer& answer) {
    std::visit([&](const auto& message) { control.send(message); }, answer);
  });
  // The other stages end when the stage before them does.
  std::optional<RequestForwarder> requests;
  if (job.process.stage == 0) requests.emplace(control, stage);
  reporter.set_phase("connecting links");
  control.send(run::Ready{links.endpoints()});
  stages::StageLinks connected = links.connect(control.wait_for_peers());
  const StageReporter::Watching watching = reporter.watch(waits, links.watched());
  reporter.set_phase("answering");
  stage.run(std::move(connected.chunks));
  return store::open_checkpoint(job.resume, store::Verify::sizes, store::Part::weights).step;
}

}  // namespace strait::worker
