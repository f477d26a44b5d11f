#pragma once

#include <cstdint>
#include <string>

#include "models/model.h"

namespace strait::app {

struct GenerationOptions {
  std::int64_t most_tokens = 64;
  double temperature = 0;  // 0: greedy
  std::int64_t top_k = 0;  // sample among this many; 0: all
  std::uint64_t seed = 1;
};

// Continues a prompt with a whole model and byte tokens until the end-of-record token, the
// model's last position, or the limit of tokens. Greedy is a pure function of model and prompt;
// sampling also of the seed. UserError where the prompt itself is too long.
std::string generate_text(models::Model& model, std::int64_t positions, const std::string& prompt,
                          const GenerationOptions& options);

}  // namespace strait::app
