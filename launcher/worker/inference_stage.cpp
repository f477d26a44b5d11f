#include "launcher/worker/inference_stage.h"

#include <ATen/core/Tensor.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace strait::worker {
namespace {

constexpr std::chrono::seconds kResultTimeout{5};

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

}  // namespace strait::worker
