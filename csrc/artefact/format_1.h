// Sections PROGRAM of files of format 1, which hold instructions at given sizes, in levels: docs/artefact.md.
#pragma once

#include <memory>

#include "artefact/program_reader.h"

namespace ngraph_mxnet {

// Returns the set of shapes with a Program whose numbers are constants. Throws as `read_programs`.
ProgramSet read_levels(Reader reader, const Section& data, const std::shared_ptr<const ArtefactFile>& file);

}  // namespace ngraph_mxnet
