#pragma once

#include "models/decoder_config.h"
#include "models/families.h"

namespace strait::models {

// A family whose models consist of the layers of decoder_layers.h. It only needs to read its
// config.json.
Family decoder_family(std::string name, DecoderConfig (*read)(const ConfigReader& reader),
                      FileNames names);

}  // namespace strait::models
