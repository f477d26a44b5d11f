#include "schedules/schedule.h"
#include "schedules/simulate.h"

namespace strait::schedules {
namespace {

// Finds what is wrong with one stage's list. Empty: nothing.
class ListCheck {
 public:
  ListCheck(const PipelineShape& shape, int promised)
      : micro_batches_(shape.micro_batches),
        promised_(promised),
        done_(static_cast<std::size_t>(shape.chunks)) {}

  std::string fault_of(const ActionList& list) {
    for (std::size_t c = 0; c < done_.size(); ++c) {
      done_[c].splits = splits_backward(list, static_cast<ChunkIndex>(c));
    }
    for (const Action& action : list) {
      std::string fault = fault_of(action);
      if (!fault.empty()) return fault;
    }
    for (std::size_t c = 0; c < done_.size(); ++c) {
      const Done& done = done_[c];
      const bool all_weights = !done.splits || done.weights == micro_batches_;
      if (done.forwards == micro_batches_ && done.backwards == micro_batches_ && all_weights) {
        continue;
      }
      std::string fault = "ends after " + std::to_string(done.forwards) + " forwards and " +
                          std::to_string(done.backwards) + " backwards";
      if (done.splits) fault += " and " + std::to_string(done.weights) + " weight gradients";
      return fault + " of " + std::to_string(micro_batches_) +
             (done_.size() == 1 ? "" : " through chunk " + std::to_string(c));
    }
    return "";
  }

 private:
  struct Done {  // of a chunk
    int forwards = 0;
    int backwards = 0;
    int weights = 0;  // weight gradients
    bool splits = false;

    int& of(Work work) {
      if (work == Work::forward) return forwards;
      return work == Work::backward ? backwards : weights;
    }
  };

  std::string fault_of(const Action& action) {
    const int c = number(action.chunk);
    if (c < 0 || c >= static_cast<int>(done_.size())) {
      return "asks for " + describe(action) + ", but has " +
             (done_.size() == 1 ? "one chunk" : std::to_string(done_.size()) + " chunks");
    }
    Done& of_chunk = done_[static_cast<std::size_t>(c)];
    int& done = of_chunk.of(action.work);
    // Micro-batches come in their order, because gradients are summed in that order: any other one
    // would change the bits.
    if (number(action.micro_batch) != done || done >= micro_batches_) {
      return "has " + describe(action) + " where " + std::to_string(done) + " is next of " +
             std::to_string(micro_batches_);
    }
    ++done;
    // Counts are enough: both kinds come in index order.
    if (of_chunk.backwards > of_chunk.forwards) {
      return "has " + describe(action) + " before its forward";
    }
    if (of_chunk.weights > of_chunk.backwards) {
      return "has " + describe(action) + " before its backward";
    }
    if (action.work == Work::forward) ++held_;
    if (action.work == (of_chunk.splits ? Work::weight_gradient : Work::backward)) --held_;
    if (held_ <= promised_) return "";
    return "holds " + std::to_string(held_) + " micro-batches and promises " +
           std::to_string(promised_);
  }

  int micro_batches_;
  int promised_;
  std::vector<Done> done_;
  int held_ = 0;
};

}  // namespace

void check_lists(const Schedule& schedule, const PipelineShape& shape) {
  const std::string subject = "the schedule \"" + schedule.name + "\"";
  if (shape.chunks > 1 && schedule.chunks == 1) {
    throw std::invalid_argument(subject + " runs one chunk a stage, not " +
                                std::to_string(shape.chunks) + "; \"interleaved\" runs several");
  }
  for (int s = 0; s < shape.stages; ++s) {
    const int promised = schedule.most_in_flight(shape, StageIndex{s});
    const std::string fault =
        ListCheck(shape, promised).fault_of(schedule.list(shape, StageIndex{s}));
    if (!fault.empty()) {
      std::string message = subject;
      message.append(": stage ").append(std::to_string(s)).append(" ").append(fault);
      throw std::invalid_argument(message);
    }
  }
  const std::vector<ActionList> lists = action_lists(schedule, shape);
  // Without times: whether lists deadlock depends on their order only.
  const std::vector<ChunkCost> costs(lists.size() * static_cast<std::size_t>(shape.chunks));
  const Forecast played = simulate(lists, costs, std::vector<LinkCost>(costs.size() - 1));
  if (!played.completes()) {
    throw std::invalid_argument(subject + " deadlocks: " + describe(played.blocked));
  }
}

}  // namespace strait::schedules
