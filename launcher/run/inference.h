#pragma once

#include <cstdint>
#include <variant>
#include <vector>

// Requests to a trained model, and its answers. Over the stages of a run these are control messages
// (control_message.h): requests go to the first stage, which passes them on, and answers come from
// the last one.
namespace strait::run {

// How the next token is chosen from the logits, in this order.
struct Sampling {
  double repetition_penalty = 1;  // for tokens that the sequence has; 1: none
  double temperature = 0;         // 0: always the likeliest token
  std::int64_t top_k = 0;         // among this many; 0: all
  double top_p = 1;               // among the likeliest ones that together have this probability
  double min_p = 0;  // among those with this fraction of the likeliest one's probability
  std::uint64_t seed = 1;
};

// Appends these tokens to a sequence. Answer: ChosenToken.
struct ExtendSequence {
  std::int64_t sequence = 0;
  std::vector<std::int32_t> tokens;
  std::int64_t capacity = 0;  // the most tokens that it will have
  Sampling sampling;
};

// Forgets the keys and values of a sequence. No answer.
struct EndSequence {
  std::int64_t sequence = 0;
};

// Rows of documents with targets to be predicted. Answer: ScoredRows.
struct ScoreRows {
  std::int64_t number = 0;
  std::int64_t padded_length = 0;
  std::vector<std::int32_t> tokens;             // of all rows, each padded
  std::vector<std::int64_t> documents_of_rows;  // number of documents per row
  std::vector<std::int64_t> document_lengths;   // of all rows
  // The positions of targets in `tokens`: first and end of each span in turn.
  std::vector<std::int64_t> target_spans;
};

struct ChosenToken {
  std::int64_t sequence = 0;
  std::int64_t token = 0;
};

struct ScoredRows {
  std::int64_t number = 0;
  double loss_sum = 0;  // over the targets
};

using InferenceRequest = std::variant<ExtendSequence, EndSequence, ScoreRows>;
using InferenceAnswer = std::variant<ChosenToken, ScoredRows>;

// The source of requests. Called from one thread at a time.
class InferenceClient {
 public:
  InferenceClient() = default;
  InferenceClient(const InferenceClient&) = delete;
  InferenceClient& operator=(const InferenceClient&) = delete;
  virtual ~InferenceClient() = default;

  // The first requests: as many as may be in flight at once.
  virtual std::vector<InferenceRequest> begin() = 0;
  // The requests that follow from an answer.
  virtual std::vector<InferenceRequest> on_answer(const InferenceAnswer& answer) = 0;
  // All required answers have arrived.
  virtual bool finished() const = 0;
};

}  // namespace strait::run
