"""Prompts for checks; (prompt, seed) pairs make as many requests as are asked for."""

PROMPTS = (
    "Explain in two sentences why the sky is blue.",
    "Write a short poem about a lighthouse in winter.",
    "List five uses for an old newspaper.",
    "What is the difference between a virus and a bacterium?",
    "Translate into French: Where is the nearest train station?",
    "Give me a recipe for pancakes.",
    "Write a Python function that reverses a string.",
    "Who was Marie Curie?",
    "Summarise: The meeting was moved to Friday because the projector broke.",
    "Continue the story: The door opened, and nobody was there.",
    "What are the planets of the solar system, in order?",
    "How do I remove a coffee stain from a shirt?",
    "Write an e-mail that declines an invitation politely.",
    "What is 17 times 23? Explain your steps.",
    "Name three books about the sea and say why they matter.",
    "Write a limerick about a programmer.",
    "Why do cats purr?",
    "Describe the taste of an orange to someone who never had one.",
    "Give three tips for learning a language.",
    "What would happen if the moon vanished?",
)
