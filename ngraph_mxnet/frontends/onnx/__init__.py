"""ONNX models enter the IR here."""
