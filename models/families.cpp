#include "models/families.h"

#include "models/gpt2.h"

namespace strait::models {

Catalogue<Family>& families() {
  static Catalogue<Family> all("model family", {gpt2_family()});
  return all;
}

const Family& family_of(const ModelConfig& config) { return families().named(config.family); }

}  // namespace strait::models
