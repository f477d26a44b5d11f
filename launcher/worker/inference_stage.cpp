#include "launcher/worker/inference_stage.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <spdlog/spdlog.h>

#include "framework/bytes.h"
#include "framework/store/checkpoint.h"
#include "launcher/planner/model_weights.h"
#include "launcher/planner/planned_model.h"
#include "launcher/plugin/plugin_file.h"
#include "launcher/worker/compute_device.h"
#include "launcher/worker/data_links.h"

namespace strait::worker {
namespace {

constexpr std::chrono::seconds kResultTimeout{5};

using Sizes = std::array<std::int64_t, 3>;

run::InferenceRequest request_of(std::span<const std::byte> bytes) {
  return std::visit(
      []<class Message>(Message&& message) -> run::InferenceRequest {
        if constexpr (std::is_constructible_v<run::InferenceRequest, Message&&>) {
          return std::forward<Message>(message);
        } else {
          throw base::MessageError("activations of a message that is not a request");
        }
      },
      run::parse_coordinator_message(bytes));
}

// Whether exactly these values are left.
bool fits(const Sizes& sizes, std::size_t bytes) {
  const std::size_t values = bytes / sizeof(float);
  if (values * sizeof(float) != bytes) return false;
  std::size_t rest = values;
  for (const std::int64_t size : sizes) {
    if (size <= 0 || rest % static_cast<std::size_t>(size) != 0) return false;
    rest /= static_cast<std::size_t>(size);
  }
  return rest == 1;
}

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

InferenceStage::InferenceStage(std::vector<std::unique_ptr<ModelPart>> parts,
                               stages::WaitClock& waits, Answer answer)
    : parts_(std::move(parts)), waits_(waits), answer_(std::move(answer)) {}

void InferenceStage::push(Input input) {
  {
    const MutexLock lock(mutex_);
    local_.push_back(std::move(input));
  }
  inbox_.wake();
}

void InferenceStage::submit(run::InferenceRequest request) {
  {
    const MutexLock lock(mutex_);
    if (ended_) return;
  }
  push({0, Activation{std::move(request), {}}});
}

void InferenceStage::end() {
  {
    const MutexLock lock(mutex_);
    if (std::exchange(ended_, true)) return;
  }
  push({0, std::nullopt});
}

std::optional<InferenceStage::Input> InferenceStage::take_local() {
  const MutexLock lock(mutex_);
  if (local_.empty()) return std::nullopt;
  Input input = std::move(local_.front());
  local_.pop_front();
  return input;
}

InferenceStage::Input InferenceStage::next() {
  const net::Link* awaited = nullptr;
  for (const stages::ChunkLinks& links : links_) {
    if (awaited == nullptr) awaited = links.upstream.get();
  }
  const stages::WaitClock::Wait wait(waits_, "the next request", [awaited] { return awaited; });
  while (true) {
    // What other processes have begun goes first.
    auto arrival = inbox_.take_until({});
    if (!arrival) {
      if (auto input = take_local()) return std::move(*input);
      arrival = inbox_.take_until(net::Inbox::Time::max());
    }
    if (!arrival) continue;
    Input input{arrival->link, read_activation(arrival->frame())};
    // The peer closes the link after the end.
    if (!input.activation) inbox_.remove(input.part);
    return input;
  }
}

// To the next part in the pipeline, here or in another process.
void InferenceStage::pass_on(Input input) {
  net::Link* const downstream = links_[input.part].downstream.get();
  if (downstream != nullptr) {
    downstream->send(input.activation ? to_frame(*input.activation) : end_frame());
  } else if (!is_last(input.part)) {
    ++input.part;
    push(std::move(input));
  }
}

void InferenceStage::run(std::vector<stages::ChunkLinks> links) {
  links_ = std::move(links);
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    if (links_[part].upstream) inbox_.add(part, *links_[part].upstream);
  }
  std::size_t ended = 0;
  while (ended < parts_.size()) {
    Input input = next();
    ended += input.activation ? 0 : 1;
    if (input.activation) {
      ModelPart& part = *parts_[input.part];
      const run::InferenceRequest& request = input.activation->request;
      at::Tensor& values = input.activation->values;
      values = part.forward(request, values);
      if (part.model().head() != nullptr) {
        if (const auto answer = part.answer(request, values)) answer_(*answer);
        continue;
      }
    }
    pass_on(std::move(input));
  }
  flush_end();
}

// The end may still be on its way when this process leaves. A peer that has come to its end closes
// the link, and one that failed says so itself.
void InferenceStage::flush_end() {
  for (const stages::ChunkLinks& one : links_) {
    if (one.downstream == nullptr) continue;
    try {
      one.downstream->flush(std::chrono::steady_clock::now() + kResultTimeout);
    } catch (const net::LinkError& error) {
      spdlog::info("after the last request: {}", error.what());
    }
  }
}

net::Frame end_frame() {
  net::Frame frame;
  append_value(frame, std::uint32_t{0});
  return frame;
}

net::Frame to_frame(const Activation& activation) {
  const net::Frame request =
      std::visit([](const auto& message) { return run::format(run::CoordinatorMessage{message}); },
                 activation.request);
  net::Frame frame;
  append_value(frame, static_cast<std::uint32_t>(request.size()));
  append_bytes(frame, std::span<const std::byte>(request.data(), request.size()));
  Sizes sizes{};
  if (activation.values.defined()) {
    TORCH_INTERNAL_ASSERT(activation.values.dim() == 3, "a hidden state has three dimensions");
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      sizes[i] = activation.values.size(static_cast<std::int64_t>(i));
    }
  }
  for (const std::int64_t size : sizes) append_value(frame, size);
  if (!activation.values.defined()) return frame;
  const at::Tensor values = activation.values.to(at::kCPU, at::kFloat).contiguous();
  append_bytes(frame, std::as_bytes(std::span(values.const_data_ptr<float>(),
                                              static_cast<std::size_t>(values.numel()))));
  return frame;
}

std::optional<Activation> read_activation(std::span<const std::byte> frame) {
  ByteReader reader(frame);
  const auto size = reader.value<std::uint32_t>();
  if (size == 0 && reader.complete()) return std::nullopt;
  const std::span<const std::byte> request = reader.bytes(size);
  Sizes sizes{};
  for (std::int64_t& one : sizes) one = reader.value<std::int64_t>();
  if (reader.failed()) throw base::MessageError("activations whose frame is too short");
  Activation activation{request_of(request), {}};
  if (sizes == Sizes{} && reader.complete()) return activation;
  const std::span<const std::byte> bytes = reader.rest();
  if (!fits(sizes, bytes.size())) {
    throw base::MessageError("activations whose sizes do not fit their bytes");
  }
  activation.values = at::empty(sizes, at::kFloat);
  std::memcpy(activation.values.mutable_data_ptr(), bytes.data(), bytes.size());
  return activation;
}

void infer(const plan::StageJob& job, net::Node& node, ControlClient& control,
           StageReporter& reporter) {
  plugin::load_copies(job.plugins);
  DataLinks links(node, job);
  stages::WaitClock waits;
  InferenceStage stage(load_parts(job, reporter), waits,
                       [&](const run::InferenceAnswer& answer) { control.send(answer); });
  // The other stages end when the stage before them does.
  std::optional<RequestForwarder> requests;
  if (job.process.stage == 0) requests.emplace(control, stage);
  reporter.set_phase("connecting links");
  control.send(run::Ready{links.endpoints()});
  stages::StageLinks connected = links.connect(control.wait_for_peers());
  const StageReporter::Watching watching = reporter.watch(waits, links.watched());
  reporter.set_phase("answering");
  stage.run(std::move(connected.chunks));
}

}  // namespace strait::worker
