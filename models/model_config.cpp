#include "models/model_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/config_reader.h"
#include "models/families.h"

namespace strait::models {

ModelConfig parse_config(std::string_view text, const std::string& file) {
  const ConfigReader reader(text, file);
  const std::string type = reader.string("model_type", "");
  std::string known;
  for (const Family& family : families()) {
    if (family.model_type == type) return family.read(reader);
    known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", family.model_type);
  }
  reader.refuse("model_type",
                families().size() == 1 ? known + ", the only family known" : "one of " + known);
}

}  // namespace strait::models
