#include "models/model_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "models/config_reader.h"
#include "models/families.h"

namespace strait::models {

ModelConfig parse_config(std::string_view text, const std::string& file) {
  const ConfigReader reader(text, file);
  const std::string type = reader.string("model_type", "");
  if (reader.has("quantization_config")) {
    reader.refuse("quantization_config",
                  "absent: quantised checkpoints are not read; use the original weights");
  }
  if (const Family* family = families().find(type)) return {type, family->read(reader)};
  const std::vector<std::string> known = families().names();
  reader.refuse("model_type", fmt::format("{}\"{}\"{}", known.size() == 1 ? "" : "one of ",
                                          fmt::join(known, "\", \""),
                                          known.size() == 1 ? ", the only family known" : ""));
}

}  // namespace strait::models
