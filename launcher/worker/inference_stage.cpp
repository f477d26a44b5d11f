#include "launcher/worker/inference_stage.h"

#include <ATen/core/Tensor.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace strait::worker {
namespace {

// The destructor waits this long at most: the threads check closing_ between receives.
constexpr std::chrono::milliseconds kActivationTimeout{100};
constexpr std::chrono::seconds kResultTimeout{5};

}  // namespace

InferenceStage::InferenceStage(std::vector<std::unique_ptr<ModelPart>> parts,
                               stages::WaitClock& waits, Answer answer)
    : parts_(std::move(parts)), waits_(waits), answer_(std::move(answer)) {}

InferenceStage::~InferenceStage() {
  closing_ = true;
  for (std::thread& receiver : receivers_) receiver.join();
}

void InferenceStage::push(Input input) {
  {
    const MutexLock lock(mutex_);
    inputs_.push_back(std::move(input));
  }
  changed_.notify_all();
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

void InferenceStage::receive_loop(std::size_t part, net::Link& link) {
  try {
    while (!closing_) {
      const auto frame = link.receive_until(std::chrono::steady_clock::now() + kActivationTimeout);
      if (!frame) continue;
      Input input{part, read_activation({frame->data(), frame->size()})};
      const bool end = !input.activation;
      push(std::move(input));
      if (end) return;
    }
  } catch (const std::exception&) {
    push({part, std::nullopt, std::current_exception()});  // thrown again by next()
  }
}

InferenceStage::Input InferenceStage::next() {
  const net::Link* awaited = nullptr;
  for (const stages::ChunkLinks& links : links_) {
    if (awaited == nullptr) awaited = links.upstream.get();
  }
  const stages::WaitClock::Wait wait(waits_, "the next request", [awaited] { return awaited; });
  const MutexLock lock(mutex_);
  while (inputs_.empty()) changed_.wait(mutex_);
  Input input = std::move(inputs_.front());
  inputs_.pop_front();
  if (input.error) std::rethrow_exception(input.error);
  return input;
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
    net::Link* const upstream = links_[part].upstream.get();
    if (upstream == nullptr) continue;
    receivers_.emplace_back([this, part, upstream] { receive_loop(part, *upstream); });
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

}  // namespace strait::worker
