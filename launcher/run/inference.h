#pragma once

#include <cstdint>
#include <optional>
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

// Appends these tokens to a sequence.
struct ExtendSequence {
  std::int64_t sequence = 0;
  std::int64_t number = 0;  // of its prompt: chance depends on it
  std::vector<std::int32_t> tokens;
  std::int64_t capacity = 0;     // the most tokens that it will have
  std::int64_t cache_bits = 32;  // of its keys and values: 32 or 8
  Sampling sampling;
  bool choose = true;  // false: more of the prompt follows, and no token is chosen
  bool score = false;  // the answer has the probabilities of these tokens
};

// Sequences that grow in one pass. Each gets what it would get alone. Answer: tokens, unless there
// are no sequences.
struct ExtendBatch {
  std::int64_t number = 0;
  std::vector<std::int64_t> ended;  // sequences whose keys and values are forgotten before the pass
  std::vector<ExtendSequence> sequences;
};

// Rows of documents with targets to be predicted. Answer: the sum of their losses.
struct ScoreRows {
  std::int64_t number = 0;
  std::int64_t padded_length = 0;
  std::vector<std::int32_t> tokens;             // of all rows, each padded
  std::vector<std::int64_t> documents_of_rows;  // number of documents per row
  std::vector<std::int64_t> document_lengths;   // of all rows
  // The positions of targets in `tokens`: first and end of each span in turn.
  std::vector<std::int64_t> target_spans;
};

// Natural logarithms of probabilities, given the tokens before.
struct TokenScore {
  double logarithm = 0;
  std::int64_t likeliest = 0;  // the likeliest token there
  double likeliest_logarithm = 0;
};

struct ChosenToken {
  std::int64_t sequence = 0;
  std::int64_t token = 0;
  // With `score`: of the request's tokens from the second on, and of the chosen one.
  std::vector<TokenScore> scores = {};
};

// To the request with this number.
struct InferenceAnswer {
  std::int64_t number = 0;
  std::vector<ChosenToken> tokens = {};  // in the order of the batch: of sequences that choose one
  std::optional<double> loss_sum = {};   // over the targets of rows
};

using InferenceRequest = std::variant<ExtendBatch, ScoreRows>;

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
  // Requests that follow from no answer, because a user has asked. Called many times a second;
  // returns at once.
  virtual std::vector<InferenceRequest> poll() { return {}; }
  // All required answers have arrived.
  virtual bool finished() const = 0;
  // It waits for a user, and for no answer.
  virtual bool idle() const { return false; }
};

}  // namespace strait::run
