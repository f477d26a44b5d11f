#pragma once

#include <string>
#include <zmq.hpp>

#include "framework/net/curve_keys.h"

namespace strait::net {

// The settings of every link socket; the source gives the reasons.
void apply_link_settings(zmq::socket_t& socket, const std::string& host);

// The CURVE server side: it accepts only the keys that the gate allows.
void serve_curve(zmq::socket_t& socket, const CurveKeyPair& keys, const std::string& domain);
// This socket proves itself with `keys`; the server must hold `server_key`.
void call_with_curve(zmq::socket_t& socket, const CurveKeyPair& keys,
                     const std::string& server_key);

// Throws LinkError::unusable for a libzmq with known vulnerabilities.
void require_safe_libzmq();
void require_safe_libzmq(int major, int minor, int patch);

}  // namespace strait::net
