#pragma once

#include "models/decoder_config.h"
#include "models/families.h"

namespace strait::models {

// A family whose models consist of the layers of decoder_layers.h. It only needs to read its
// config.json.
Family decoder_family(std::string name, DecoderConfig (*read)(const ConfigReader& reader),
                      FileNames names);

// Values per token that the experts of a block keep for the backward. Every token has the same
// number of experts, whatever the router chooses.
std::int64_t saved_expert_values(const DecoderConfig& config, const Lora* lora, int index,
                                 const CostQuestion& question);

// Those that their backward has at a time in addition.
std::int64_t working_expert_values(const DecoderConfig& config, const Lora* lora, int index,
                                   const CostQuestion& question);

}  // namespace strait::models
