#include "models/families.h"

#include "models/gpt2.h"

namespace strait::models {

const std::vector<Family>& families() {
  // In the order of the alternatives of ModelConfig::values.
  static const std::vector<Family> kAll{gpt2_family()};
  static_assert(std::variant_size_v<decltype(ModelConfig::values)> == 1);
  return kAll;
}

const Family& family_of(const ModelConfig& config) { return families().at(config.values.index()); }

}  // namespace strait::models
