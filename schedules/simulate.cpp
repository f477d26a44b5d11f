#include "schedules/simulate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "schedules/pipeline_shape.h"
#include "schedules/shared_cores.h"

namespace strait::schedules {
namespace {

// A plugin's lists may name any micro-batch. What is allocated for them stays bounded.
constexpr int kMostMicroBatches = 1 << 20;
[[noreturn]] void refuse_to_simulate(const std::string& fact) {
  throw std::invalid_argument("cannot simulate: " + fact);
}

StageIndex stage_index(std::size_t stage) { return static_cast<StageIndex>(stage); }

// What has happened to a micro-batch in one chunk.
struct Passage {
  std::array<bool, 3> done{};  // by Work
  std::array<bool, 3> listed{};
  bool activation_arrived = false;
  bool gradient_arrived = false;

  bool& is_done(Work work) { return done.at(static_cast<std::size_t>(work)); }
  bool& is_listed(Work work) { return listed.at(static_cast<std::size_t>(work)); }
  bool is_split() { return is_listed(Work::weight_gradient); }
};

struct StagePlay {
  std::size_t next = 0;  // position in the list
  bool busy = false;
  double since = 0;         // that it is busy, or idle
  double line_free_at = 0;  // the line on which it sends
  int in_flight = 0;
};

struct ChunkPlay {
  int held = 0;                   // forwards whose backward is to come
  int queued = 0;                 // split backwards whose weight gradient is to come
  std::vector<Passage> passages;  // by micro-batch
};

// Between adjacent chunk positions.
struct Message {
  std::size_t from = 0;
  std::size_t to = 0;
  MicroBatch micro_batch{};

  bool down() const { return from < to; }
  std::size_t link() const { return std::min(from, to); }
};

// A thread that encodes or decodes the messages of a link's end, one after the other.
struct Coder {
  std::vector<std::size_t> messages;
  std::size_t next = 0;
};

constexpr std::size_t kCodersOfLink = 4;  // two directions, two ends
constexpr std::size_t kNobody = std::numeric_limits<std::size_t>::max();

// With a machine for each stage where none is stated.
Machines complete(std::size_t stages, Machines machines) {
  for (std::size_t s = machines.stages.size(); s < stages; ++s) {
    machines.stages.push_back({machines.cores.size(), 1, machines.cores.size()});
    machines.cores.push_back(std::numeric_limits<double>::infinity());
  }
  return machines;
}

// Tasks are numbered: the actions of stages, then coders, then messages on their way.
class Player {
 public:
  Player(std::span<const ActionList> lists, std::span<const ChunkCost> costs,
         std::span<const LinkCost> links, const Machines& machines)
      : lists_(lists),
        costs_(costs),
        links_(links),
        machines_(complete(lists.size(), machines)),
        cores_(machines_.cores),
        stages_(lists.size()),
        chunks_(costs.size()),
        path_free_at_(lists.size() * lists.size()),
        coders_(links.size() * kCodersOfLink) {
    read_lists();
    forecast_.stages.resize(lists.size());
  }

  Forecast play() {
    for (std::size_t s = 0; s < lists_.size(); ++s) start_action(s);
    while (const std::optional<std::size_t> task = cores_.next()) end_task(*task);
    finish();
    return std::move(forecast_);
  }

 private:
  void read_lists();
  void start_action(std::size_t s);
  void end_action(std::size_t s);
  void end_task(std::size_t task);
  void end_coding(std::size_t coder);
  void hold(std::size_t s, const Action& action, Passage& passage);
  void make_message(std::size_t from, std::size_t to, MicroBatch micro_batch);
  void code(std::size_t coder, std::size_t message);
  void start_coding(std::size_t coder);
  void send(std::size_t message);
  void receive(std::size_t message);
  void deliver(std::size_t message);
  void finish();
  bool is_ready(std::size_t position, const Action& action);
  std::string why_blocked(std::size_t s, const Action& action);

  std::size_t position(std::size_t s, const Action& action) const {
    return static_cast<std::size_t>(
        position_of(stage_index(s), action.chunk, static_cast<int>(lists_.size())));
  }
  std::size_t stage_of(std::size_t position) const { return position % lists_.size(); }
  const StagePlace& place_at(std::size_t position) const {
    return machines_.stages[stage_of(position)];
  }
  Passage& passage(std::size_t position, MicroBatch micro_batch) {
    return chunks_[position].passages[static_cast<std::size_t>(number(micro_batch))];
  }
  double coding_seconds(const Message& message) const {
    const LinkCost& link = links_[message.link()];
    return message.down() ? link.forward_coding_seconds : link.backward_coding_seconds;
  }
  double bytes_of(const Message& message) const {
    const LinkCost& link = links_[message.link()];
    return message.down() ? link.forward_bytes : link.backward_bytes;
  }
  // Of a link's end.
  static std::size_t coder_of(const Message& message, bool receives) {
    return kCodersOfLink * message.link() + (message.down() ? 0 : 2) + (receives ? 1 : 0);
  }
  // That is busy with these bytes while they cross; nothing waits for it.
  void transport(std::size_t position, const Message& message) {
    const double seconds = links_[message.link()].transport_seconds_per_byte * bytes_of(message);
    if (seconds > 0) cores_.start(place_at(position).host, seconds, 1, kNobody);
  }

  std::span<const ActionList> lists_;
  std::span<const ChunkCost> costs_;  // by chunk position
  std::span<const LinkCost> links_;
  Machines machines_;
  SharedCores cores_;
  std::vector<StagePlay> stages_;
  std::vector<ChunkPlay> chunks_;     // by chunk position
  std::vector<double> path_free_at_;  // by the stage that sends, then by the one that receives
  std::vector<Coder> coders_;
  std::vector<Message> messages_;
  Forecast forecast_;
};

void Player::read_lists() {
  int micro_batches = 0;
  std::size_t actions = 0;
  const auto chunks = static_cast<int>(costs_.size() / lists_.size());
  for (std::size_t s = 0; s < lists_.size(); ++s) {
    for (const Action& action : lists_[s]) {
      const int c = number(action.chunk);
      const int m = number(action.micro_batch);
      if (c < 0 || c >= chunks || m < 0 || m >= kMostMicroBatches) {
        refuse_to_simulate("stage " + std::to_string(s) + " lists " + describe(action) +
                           "; expected chunk 0" +
                           (chunks == 1 ? "" : " to " + std::to_string(chunks - 1)) +
                           " and a micro-batch from 0 to " + std::to_string(kMostMicroBatches - 1));
      }
      micro_batches = std::max(micro_batches, m + 1);
    }
    actions += lists_[s].size();
  }
  for (ChunkPlay& chunk : chunks_) chunk.passages.resize(static_cast<std::size_t>(micro_batches));
  for (std::size_t s = 0; s < lists_.size(); ++s) {
    for (const Action& action : lists_[s]) {
      bool& listed = passage(position(s, action), action.micro_batch).is_listed(action.work);
      // Also before anything plays: whether a backward is split follows from a later action of the
      // list.
      if (listed) {
        refuse_to_simulate("stage " + std::to_string(s) + " lists " + describe(action) + " twice");
      }
      listed = true;
    }
  }
  forecast_.spans.reserve(actions);
  forecast_.transfers.reserve(actions);
}

double seconds_of(const ChunkCost& cost, Work work, bool split) {
  if (work == Work::forward) return cost.forward_seconds;
  if (work == Work::weight_gradient) return cost.weight_gradient_seconds;
  return cost.backward_seconds - (split ? cost.weight_gradient_seconds : 0);
}

void Player::start_action(std::size_t s) {
  StagePlay& stage = stages_[s];
  if (stage.busy || stage.next == lists_[s].size()) return;
  const Action& action = lists_[s][stage.next];
  const std::size_t p = position(s, action);
  // Whoever makes what it waits for asks again.
  if (!is_ready(p, action)) return;
  stage.busy = true;
  stage.since = cores_.now();
  const bool split = passage(p, action.micro_batch).is_split();
  const StagePlace& place = machines_.stages[s];
  cores_.start(place.machine, seconds_of(costs_[p], action.work, split), place.threads, s);
}

bool Player::is_ready(std::size_t position, const Action& action) {
  Passage& here = passage(position, action.micro_batch);
  switch (action.work) {
    case Work::forward:
      return position == 0 || here.activation_arrived;
    case Work::backward:
      return here.is_done(Work::forward) &&
             (position + 1 == costs_.size() || here.gradient_arrived);
    case Work::weight_gradient:
      return here.is_done(Work::backward);
  }
  return false;
}

void Player::end_action(std::size_t s) {
  StagePlay& stage = stages_[s];
  const Action& action = lists_[s][stage.next];
  const std::size_t p = position(s, action);
  forecast_.stages[s].busy_seconds += cores_.now() - stage.since;
  forecast_.spans.push_back({stage_index(s), action, stage.since, cores_.now()});
  stage.busy = false;
  stage.since = cores_.now();
  ++stage.next;
  Passage& here = passage(p, action.micro_batch);
  here.is_done(action.work) = true;
  hold(s, action, here);
  if (action.work == Work::forward && p + 1 < costs_.size()) {
    make_message(p, p + 1, action.micro_batch);
  }
  if (action.work == Work::backward && p > 0) make_message(p, p - 1, action.micro_batch);
  start_action(s);
}

void Player::end_task(std::size_t task) {
  if (task == kNobody) return;
  if (task < stages_.size()) return end_action(task);
  const std::size_t coder = task - stages_.size();
  if (coder < coders_.size()) return end_coding(coder);
  receive(coder - coders_.size());
}

void Player::hold(std::size_t s, const Action& action, Passage& here) {
  StagePlay& stage = stages_[s];
  ChunkPlay& chunk = chunks_[position(s, action)];
  const bool only_forward = !here.is_listed(Work::backward);
  switch (action.work) {
    case Work::forward:
      ++chunk.held;
      ++stage.in_flight;
      break;
    case Work::backward:
      --chunk.held;
      if (here.is_split()) ++chunk.queued;
      break;
    case Work::weight_gradient:
      --chunk.queued;
      break;
  }
  double bytes = 0;
  for (std::size_t p = s; p < chunks_.size(); p += lists_.size()) {
    bytes += chunks_[p].held * costs_[p].bytes_in_flight;
    bytes += chunks_[p].queued * costs_[p].weight_gradient_bytes;
  }
  StageForecast& forecast = forecast_.stages[s];
  // Before what this action ends is taken off: until then it was in flight.
  forecast.peak_in_flight = std::max(forecast.peak_in_flight, stage.in_flight);
  forecast.peak_bytes = std::max(forecast.peak_bytes, bytes);
  const Work last = here.is_split() ? Work::weight_gradient : Work::backward;
  if (action.work == last || only_forward) --stage.in_flight;
  if (only_forward) --chunk.held;
}

void Player::make_message(std::size_t from, std::size_t to, MicroBatch micro_batch) {
  const std::size_t message = messages_.size();
  messages_.push_back({from, to, micro_batch});
  if (coding_seconds(messages_.back()) == 0) return send(message);
  // A link's end codes its messages in order, during compute, on the cores of its host.
  code(coder_of(messages_.back(), false), message);
}

void Player::code(std::size_t coder, std::size_t message) {
  std::vector<std::size_t>& messages = coders_[coder].messages;
  messages.push_back(message);
  if (coders_[coder].next + 1 == messages.size()) start_coding(coder);
}

void Player::start_coding(std::size_t coder) {
  const Message& message = messages_[coders_[coder].messages[coders_[coder].next]];
  const bool receives = coder_of(message, true) == coder;
  const StagePlace& place = place_at(receives ? message.to : message.from);
  cores_.start(place.host, coding_seconds(message), 1, stages_.size() + coder);
}

void Player::end_coding(std::size_t number) {
  Coder& coder = coders_[number];
  const std::size_t message = coder.messages[coder.next++];
  if (coder.next < coder.messages.size()) start_coding(number);
  if (coder_of(messages_[message], true) == number) return deliver(message);
  send(message);
}

void Player::send(std::size_t number) {
  const Message& message = messages_[number];
  const LinkCost& link = links_[message.link()];
  const bool down = message.down();
  const std::size_t sender = stage_of(message.from);
  const std::size_t receiver = stage_of(message.to);
  // A path carries one message after the other, and so does the sender's line, which all of its
  // paths share. Each is busy for the time that the bytes take at its own rate.
  double& free_at = path_free_at_[sender * lists_.size() + receiver];
  double& line_free_at = stages_[sender].line_free_at;
  line_free_at = std::max(line_free_at, cores_.now());
  const double start = std::max(free_at, line_free_at);
  const double bytes = bytes_of(message);
  free_at = start + bytes / (down ? link.forward_bytes_per_second : link.backward_bytes_per_second);
  line_free_at +=
      bytes / (down ? link.forward_uplink_bytes_per_second : link.backward_uplink_bytes_per_second);
  forecast_.transfers.push_back(
      {stage_index(sender), stage_index(receiver),
       chunk_at(static_cast<int>(message.from), static_cast<int>(lists_.size())),
       message.micro_batch, start, free_at});
  transport(message.from, message);
  // Latency delays a message but does not occupy the path.
  cores_.wait(free_at + link.latency_seconds, stages_.size() + coders_.size() + number);
}

void Player::receive(std::size_t message) {
  const Message& received = messages_[message];
  transport(received.to, received);
  if (coding_seconds(received) == 0) return deliver(message);
  code(coder_of(received, true), message);
}

void Player::deliver(std::size_t message) {
  const Message& ready = messages_[message];
  Passage& there = passage(ready.to, ready.micro_batch);
  (ready.down() ? there.activation_arrived : there.gradient_arrived) = true;
  start_action(stage_of(ready.to));
}

void Player::finish() {
  double last = 0;
  for (std::size_t s = 0; s < lists_.size(); ++s) {
    last = std::max(last, stages_[s].since);
    if (stages_[s].next == lists_[s].size()) continue;
    const Action& action = lists_[s][stages_[s].next];
    forecast_.blocked.push_back({stage_index(s), action, why_blocked(s, action)});
  }
  // Updates begin together: the gradient norm is that of all stages.
  std::vector<double> updates(lists_.size());
  for (std::size_t p = 0; p < costs_.size(); ++p) updates[stage_of(p)] += costs_[p].update_seconds;
  // A second clock, which begins at the end of the last action.
  SharedCores cores(machines_.cores);
  for (std::size_t s = 0; s < lists_.size(); ++s) {
    cores.start(machines_.stages[s].machine, updates[s], machines_.stages[s].threads, s);
  }
  while (const std::optional<std::size_t> s = cores.next()) {
    forecast_.stages[*s].busy_seconds += cores.now();
  }
  forecast_.seconds = last + cores.now();
  for (StageForecast& stage : forecast_.stages) {
    stage.idle_seconds = std::max(0.0, forecast_.seconds - stage.busy_seconds);
  }
}

std::string Player::why_blocked(std::size_t s, const Action& action) {
  const std::size_t here = position(s, action);
  Action needed = action;
  std::size_t maker = here;
  if (action.work == Work::weight_gradient) {
    needed.work = Work::backward;
  } else if (action.work == Work::forward) {
    maker = here - 1;
  } else if (!passage(here, action.micro_batch).is_done(Work::forward)) {
    needed.work = Work::forward;
  } else {
    maker = here + 1;
  }
  const std::size_t stage = maker % lists_.size();
  needed.chunk = chunk_at(static_cast<int>(maker), static_cast<int>(lists_.size()));
  std::string reason = "needs " + describe(needed) + " of stage " + std::to_string(stage);
  if (!passage(maker, needed.micro_batch).is_listed(needed.work)) {
    return reason + ", which never does it";
  }
  if (stage == s) return reason + ", which stands later in the same list";
  return reason + ", which stops before " + describe(lists_[stage][stages_[stage].next]);
}

}  // namespace

Forecast simulate(std::span<const ActionList> lists, std::span<const ChunkCost> costs,
                  std::span<const LinkCost> links, const Machines& machines) {
  check_costs(lists.size(), costs, links, machines);
  return Player(lists, costs, links, machines).play();
}

std::string describe(std::span<const BlockedStage> blocked) {
  std::string text;
  for (const BlockedStage& stage : blocked) {
    if (!text.empty()) text += "; ";
    text += "stage " + std::to_string(number(stage.stage)) + " stops before " +
            describe(stage.action) + ": it " + stage.reason;
  }
  return text;
}

}  // namespace strait::schedules
