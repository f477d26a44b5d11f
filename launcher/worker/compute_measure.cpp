#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>

#include "launcher/base/errors.h"
#include "launcher/base/read_all.h"
#include "launcher/hosts/agent_message.h"
#include "launcher/planner/layer_times.h"
#include "launcher/worker/commands.h"
#include "launcher/worker/compute_device.h"
#include "models/initialize.h"
#include "models/model.h"
#include "models/model_config.h"
#include "models/model_description.h"

namespace strait::worker {
namespace {

constexpr std::int64_t kCopiedFloats = std::int64_t{16} << 20;  // 64 MiB, more than CPU caches hold
constexpr int kCopies = 8;
constexpr int kFirstBlock = 1;  // layer 0 is the embedding
constexpr std::size_t kMaxOrderBytes = std::size_t{16} << 20;
constexpr auto kOrderLimit = std::chrono::seconds(20);

double memory_rate(at::Device device) {
  const at::Tensor from = at::ones({kCopiedFloats}, device);
  at::Tensor to = at::zeros({kCopiedFloats}, device);
  planner::timed(device, [&] { to.copy_(from); });  // this one also maps the tensors
  double seconds = 0;
  for (int i = 0; i < kCopies; ++i) seconds += planner::timed(device, [&] { to.copy_(from); });
  // A copy reads and writes every byte.
  return 2.0 * kCopies * static_cast<double>(from.nbytes()) / seconds;
}

}  // namespace

hosts::ComputeMeasured measure_compute(const hosts::MeasureCompute& order) {
  at::set_num_threads(static_cast<int>(order.threads));
  const models::ModelConfig config = models::parse_config(order.model_config, "config.json");
  const models::ModelDescription description =
      models::describe(config, {order.row, static_cast<std::int64_t>(sizeof(float))});
  if (description.layers.size() < 3) {
    throw base::UserError(base::ExitCode::bad_input,
                          "the model has no blocks, so there is nothing to measure");
  }
  const at::Device device =
      choose_device(order.gpu ? recipe::Device::automatic : recipe::Device::cpu,
                    accelerators_here(), 0, "the host");
  const auto model = models::make_model(config, {kFirstBlock, kFirstBlock}, at::kFloat, device);
  models::initialize(*model, config, 1);
  const std::vector<std::vector<std::int64_t>> rows(static_cast<std::size_t>(order.rows),
                                                    {order.row});
  const at::Tensor input = at::randn({order.rows, order.row, description.hidden}, device);
  input.set_requires_grad(true);  // like the input of a stage
  models::Pass pass = models::make_pass(rows, order.row);
  pass.training = true;  // dropout takes its time, too
  const planner::LayerTime time = planner::time_layer(model->layer(kFirstBlock), input, pass);
  hosts::ComputeMeasured measured;
  measured.flops_per_second = description.layers[kFirstBlock].forward_flops_per_token *
                              static_cast<double>(order.rows * order.row) / time.forward;
  measured.backward = time.backward / time.forward;
  measured.memory_bytes_per_second = memory_rate(device);
  if (order.gpu) measured.gpu_memory = accelerator_memory();
  return measured;
}

base::ExitCode serve_measurement(int input, int output) {
  hosts::ReplyTo<hosts::MeasureCompute> reply;
  try {
    const std::string text = base::read_all(input, "what to measure", kMaxOrderBytes, kOrderLimit);
    const hosts::LauncherMessage order =
        hosts::parse_launcher_message(std::as_bytes(std::span(text)));
    reply = measure_compute(std::get<hosts::MeasureCompute>(order));
  } catch (const std::exception& error) {
    // The reply is the only way to say what went wrong: the agent reads nothing else from this
    // process.
    reply = base::describe_failure(error);
  }
  net::Frame line = hosts::ReplyFrame<hosts::ComputeMeasured>::format(reply);
  // The agent reads one line. JSON on one line has no line break of its own.
  line.push_back(std::byte{'\n'});
  return base::write_all(output, line) ? base::ExitCode::done : base::ExitCode::peer_lost;
}

}  // namespace strait::worker
