#pragma once

#include "framework/mutex.h"
#include "framework/net/inbox.h"
#include "framework/net/link.h"
#include "framework/net/node.h"
#include "launcher/recipe/stage_job.h"
#include "launcher/run/inference.h"
#include "launcher/worker/control_client.h"
#include "launcher/worker/model_part.h"
#include "launcher/worker/stage_reporter.h"
#include "stages/stage_options.h"
#include "stages/wait_clock.h"

namespace strait::worker {

// What one part of a model hands to the next: the request, and the hidden state where it has one
// (float32 [rows, length, hidden], as it lies in memory: stages answer as one process would).
//
//     u32 size of the request   0: no request follows, ever
//     the request               a control message (control_message.h)
//     i64 rows, length, hidden  0, 0, 0: none
//     float32 × rows · length · hidden
struct Activation {
  run::InferenceRequest request;
  at::Tensor values;  // undefined: none
};

net::Frame to_frame(const Activation& activation);
net::Frame end_frame();

// nullopt: it is end_frame(). MessageError: the frame is neither.
std::optional<Activation> read_activation(std::span<const std::byte> frame);

// One process's parts of a model, in a pipeline of processes that answer requests. Each part takes
// what comes in its order; parts of different requests run at the same time in different processes.
//
// An inbox receives from all links from upstream, so that peers never wait for each other to send,
// also where a process has several parts.
class InferenceStage {
 public:
  using Answer = std::function<void(const run::InferenceAnswer&)>;

  InferenceStage(std::vector<std::unique_ptr<ModelPart>> parts, stages::WaitClock& waits,
                 Answer answer);
  InferenceStage(const InferenceStage&) = delete;
  InferenceStage& operator=(const InferenceStage&) = delete;

  // Of the first stage, any thread, also before run(). After end() no request is taken.
  void submit(run::InferenceRequest request) STRAIT_EXCLUDES(mutex_);
  void end() STRAIT_EXCLUDES(mutex_);

  // Answers requests until all parts have come to their end. LinkError, MessageError.
  void run(std::vector<stages::ChunkLinks> links);

 private:
  struct Input {
    std::size_t part = 0;
    std::optional<Activation> activation;  // none: the part has come to its end
  };

  void push(Input input) STRAIT_EXCLUDES(mutex_);
  Input next() STRAIT_EXCLUDES(mutex_);
  std::optional<Input> take_local() STRAIT_EXCLUDES(mutex_);
  void pass_on(Input input);
  void flush_end();
  bool is_last(std::size_t part) const { return part + 1 == parts_.size(); }

  const std::vector<std::unique_ptr<ModelPart>> parts_;
  stages::WaitClock& waits_;
  const Answer answer_;
  std::vector<stages::ChunkLinks> links_;
  net::Inbox inbox_;  // of the links from upstream, by part

  Mutex mutex_;
  std::deque<Input> local_ STRAIT_GUARDED_BY(mutex_);  // from this process
  bool ended_ STRAIT_GUARDED_BY(mutex_) = false;
};

// The main function of a stage process that answers requests to a trained model: loads its layers
// of the checkpoint, connects its links, and answers until the coordinator ends it. Returns the
// step of the checkpoint.
void infer(const plan::StageJob& job, net::Node& node, ControlClient& control,
           StageReporter& reporter);

}  // namespace strait::worker
