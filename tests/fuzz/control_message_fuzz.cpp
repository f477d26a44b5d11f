// libFuzzer target: any bytes as what coordinator and stages say to each other, the first byte
// choosing the direction: a message or one MessageError, and what was read is written so that it
// reads back the same.
#include <cstdlib>
#include <type_traits>

#include "launcher/run/control_message.h"
#include "tests/fuzz/examples.h"

namespace run = strait::run;

namespace {

std::string text_of(char direction, const strait::net::Frame& frame) {
  const void* bytes = frame.data();
  return direction + std::string(static_cast<const char*>(bytes), frame.size());
}

// One of every type, with nothing in its lists.
template <class Message, std::size_t... Types>
void add_empty_ones(std::vector<std::string>& to, char direction, std::index_sequence<Types...>) {
  (to.push_back(text_of(direction, run::format(Message(std::in_place_index<Types>)))), ...);
}

template <class Parse>
void read_twice(Parse parse, std::span<const std::byte> frame) {
  try {
    const auto first = run::format(parse(frame));
    if (run::format(parse(first)) != first) std::abort();
  } catch (const strait::base::MessageError& error) {
    if (*error.what() == '\0') std::abort();
  }
}

}  // namespace

std::vector<std::string> examples() {
  using run::CoordinatorMessage;
  using run::StageMessage;
  std::vector<std::string> all;
  add_empty_ones<StageMessage>(all, 0,
                               std::make_index_sequence<std::variant_size_v<StageMessage>>());
  add_empty_ones<CoordinatorMessage>(
      all, 1, std::make_index_sequence<std::variant_size_v<CoordinatorMessage>>());
  run::StepDone step;
  step.boundaries.resize(1);
  step.sync.resize(1);
  step.links.resize(1);
  step.loss = 1;
  run::InferenceAnswer answer{1, {{1, 2, {{}}}}, 1};
  run::Admit admit;
  admit.keys = {{"0.1", "key"}};
  for (const StageMessage& message :
       {StageMessage(step), StageMessage(answer),
        StageMessage(run::Ready{{{"boundary 0.0>1.0", "tcp://127.0.0.1:1"}}, 1}),
        StageMessage(run::Progress{.waits_on = strait::net::ProcessName{}, .links = {{}}}),
        StageMessage(run::ShardsWritten{{}, {{"file", 1, "hash"}}, 1})}) {
    all.push_back(text_of(0, run::format(message)));
  }
  for (const CoordinatorMessage& message :
       {CoordinatorMessage(admit), CoordinatorMessage(run::Regroup{1, {0, 1}}),
        CoordinatorMessage(run::ScoreRows{1, 2, {1, 2}, {1}, {2}, {0, 1}}),
        CoordinatorMessage(run::CheckpointDecided{{}, 1, "why", true, true, 2, 3})}) {
    all.push_back(text_of(1, run::format(message)));
  }
  return all;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::byte> frame = std::as_bytes(std::span(data + 1, size - 1));
  if (data[0] % 2 == 0) {
    read_twice(run::parse_stage_message, frame);
  } else {
    read_twice(run::parse_coordinator_message, frame);
  }
  return 0;
}
